"""The public CI, which runs the scripts in `.ci` as contributors can, and the version in all its places."""

import os
import re
import shlex
import tomllib
from importlib import metadata
from typing import Any

import pytest
import yaml
from packaging.version import Version

import tableside
from scripts import releasing
from scripts.bootstrap import PROJECT, ROOT


@pytest.fixture
def workflow() -> dict[Any, Any]:
    """The workflow's definition."""
    [file] = (ROOT / ".github" / "workflows").iterdir()
    described: dict[Any, Any] = yaml.safe_load(file.read_text())
    return described


def steps(workflow: dict[Any, Any]) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


def test_its_only_commands_are_scripts_of_the_tree(workflow: dict[Any, Any]) -> None:
    commands = [shlex.split(step["run"]) for step in steps(workflow) if "run" in step]
    assert commands == [[".ci/run", "--quick"], [".ci/run"], [".ci/coverage", "--daily"]]
    assert all(os.access(ROOT / command, os.X_OK) for command, *_ in commands)
    assert all(job["timeout-minutes"] for job in workflow["jobs"].values())


def test_its_actions_are_pinned_to_commits(workflow: dict[Any, Any]) -> None:
    for job in workflow["jobs"].values():
        checkout, *_ = job["steps"]
        assert checkout["with"] == {"persist-credentials": False}
    for step in steps(workflow):
        assert "run" in step or re.fullmatch(r"actions/(checkout|cache|upload-artifact)@[0-9a-f]{40}", step["uses"])


def test_the_quick_cases_run_on_every_supported_python(workflow: dict[Any, Any]) -> None:
    [first, *_] = versions = workflow["jobs"]["quick"]["strategy"]["matrix"]["python"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert versions == ["3.11", "3.12", "3.13", "3.14"]
    assert project["requires-python"] == f">={first}"
    runner = (ROOT / "scripts" / "run").read_text()
    assert all(f"python{version}" in runner for version in versions)


def test_it_has_only_read_permission(workflow: dict[Any, Any]) -> None:
    assert workflow["permissions"] == {"contents": "read"}
    assert "secrets." not in str(workflow)
    assert "pull_request_target" not in workflow[True]  # YAML reads the word `on` as True


def test_every_place_states_the_version_of_the_project() -> None:
    version = Version(tomllib.loads(PROJECT.read_text())["project"]["version"])
    assert tableside.__version__ == metadata.version("tableside") == str(version)
    image = Version(yaml.safe_load((ROOT / "helm" / "Chart.yaml").read_text())["appVersion"])
    assert image == version or (version.is_devrelease and image < version)
    assert releasing.describes((ROOT / "CHANGELOG.md").read_text(), image)
