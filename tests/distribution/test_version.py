"""The version in pyproject.toml, and the places that must state the same one."""

import tomllib
from importlib import metadata

import yaml
from packaging.version import Version

import tableside
from scripts import releasing
from scripts.bootstrap import PROJECT, ROOT

VERSION = Version(tomllib.loads(PROJECT.read_text())["project"]["version"])


def test_the_package_states_the_version() -> None:
    assert tableside.__version__ == metadata.version("tableside") == str(VERSION)


def test_the_chart_and_the_changelog_belong_to_the_last_release() -> None:
    image = Version(yaml.safe_load((ROOT / "helm" / "Chart.yaml").read_text())["appVersion"])
    assert image == VERSION or (VERSION.is_devrelease and image < VERSION)
    assert releasing.describes((ROOT / "CHANGELOG.md").read_text(), image)
