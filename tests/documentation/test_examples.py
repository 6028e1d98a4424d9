"""Blocks of pages that cannot run are well-formed, and the options, modules and extras in them exist."""

import json
import re
import shlex
import subprocess
import tomllib
from itertools import pairwise
from pathlib import Path

import pyspark
import pytest
from packaging.requirements import Requirement

from documentation.blocks import Block
from documentation.claims import BASED, CONTAINED, INSTALLED, NAMED, READ, SUBMITTED, claimed
from documentation.verbs import options_of
from scripts.bootstrap import ROOT


@pytest.mark.parametrize("block", claimed(READ), ids=str)
def test_json_blocks_are_valid(block: Block) -> None:
    assert isinstance(json.loads(block.text), dict | list)


@pytest.mark.parametrize("block", claimed(INSTALLED), ids=str)
def test_installed_extras_exist(block: Block) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [Requirement(text) for text in re.findall(r"'?(tableside(?:\[[\w,]+\])?)'?$", block.text, re.MULTILINE)]
    assert wanted
    assert {extra for one in wanted for extra in one.extras} <= project["optional-dependencies"].keys()


@pytest.mark.parametrize("block", claimed(NAMED), ids=str)
def test_named_modules_exist(block: Block) -> None:
    packages = (ROOT / "service" / "tableside", ROOT / "spark_client", ROOT / "spark_client" / "tableside_spark")
    assert set(re.findall(r"[a-z_]+", block.text)) <= {path.stem for package in packages for path in package.iterdir()}


@pytest.mark.parametrize("block", claimed(CONTAINED), ids=str)
def test_container_commands_use_existing_options(block: Block) -> None:
    for line in block.text.splitlines():
        docker, verb, *given = shlex.split(line)
        assert docker == "docker"
        if verb == "build":
            assert (ROOT / given[-1] / "Dockerfile").is_file()
        else:
            assert verb == "run"
            check_command(after_image(given))


def after_image(given: list[str]) -> list[str]:
    """Return the command for the container: the words after the image's name, or after an ellipsis that includes it."""
    image = next(at for at, word in enumerate(given) if word in ("tableside", "…") and given[at - 1] != "--name")
    return given[image + 1 :]


def check_command(command: list[str]) -> None:
    if command:
        assert {word for word in command if word.startswith("--")} <= options_of(command)


def commands(block: Block) -> list[list[str]]:
    """Return the commands of a shell block, each as a list of words."""
    return [shlex.split(line) for line in block.text.replace("\\\n", " ").splitlines()]


@pytest.fixture(scope="module")
def options() -> set[str]:
    """The options in the help of `spark-submit`."""
    spark_submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    told = subprocess.run([spark_submit, "--help"], capture_output=True, text=True)
    return set(re.findall(r"--[a-z-]+", told.stdout + told.stderr))


@pytest.mark.parametrize("block", claimed(SUBMITTED), ids=str)
def test_spark_submit_has_the_options(block: Block, options: set[str]) -> None:
    submits = [words for words in commands(block) if words[0] == "spark-submit"]
    assert submits
    for words in submits:
        assert {word for word in words if word.startswith("--")} <= options
        for before, after in pairwise(words):
            assert before != "--conf" or re.fullmatch(r"spark\.[\w.]+=\S+", after), after


@pytest.mark.parametrize("block", claimed(BASED), ids=str)
def test_an_image_installs_the_projects_requirements(block: Block) -> None:
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    said = [Requirement(text) for text in re.findall(r'"([a-z]+[<>=!][^"]*)"', block.text)]
    assert {one.name for one in said} == {"tableside", "pandas"}
    [pandas] = [one for one in said if one.name == "pandas"]
    assert pandas in [Requirement(text) for text in wanted["spark"]]
