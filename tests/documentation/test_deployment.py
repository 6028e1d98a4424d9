"""The commands and objects of docs/spark-deployment.md are valid for tools that the tests cannot run."""

import re
import shlex
import subprocess
import tomllib
from itertools import pairwise
from pathlib import Path

import kubernetes_validate  # type: ignore[import-untyped]  # it ships none
import pyspark
import pytest
import yaml
from packaging.requirements import Requirement

from documentation.blocks import Block, every_block
from documentation.claims import BASED, SUBMITTED, VALIDATED, claims_of
from scripts.bootstrap import ROOT
from spark_client.deployment import environments

KUBERNETES = "1.34"


def claimed(test: str) -> list[Block]:
    return [block for block in every_block() if test in [claim.test for claim in claims_of(block)]]


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


@pytest.mark.parametrize("block", claimed(VALIDATED), ids=str)
def test_the_object_is_valid_for_kubernetes(block: Block) -> None:
    kubernetes_validate.validate(yaml.safe_load(block.text), KUBERNETES, strict=True)


@pytest.mark.parametrize("block", claimed(BASED), ids=str)
def test_an_image_installs_the_projects_requirements(block: Block) -> None:
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    said = [Requirement(text) for text in re.findall(r'"([a-z]+[<>=!][^"]*)"', block.text)]
    assert {one.name for one in said} == {"tableside", "pandas"}
    [pandas] = [one for one in said if one.name == "pandas"]
    assert pandas in [Requirement(text) for text in wanted["spark"]]


def test_the_packages_of_the_zip_file_are_the_tested_ones() -> None:
    [block] = [
        block for block in every_block() if block.page == "docs/spark-deployment.md" and "--py-files" in block.text
    ]
    [install] = [words for words in commands(block) if words[:2] == ["pip", "install"]]
    named = install[install.index("packages") + 1 :]
    assert set(named) == {"tableside", *(Path(name).stem for name in environments.PURE)}
