"""What docs/spark-deployment.md says to tools that are not here, or not run: they would understand it."""

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
    """Return the commands of a shell block, in words."""
    return [shlex.split(line) for line in block.text.replace("\\\n", " ").splitlines()]


@pytest.fixture(scope="module")
def options() -> set[str]:
    """The options that `spark-submit` says that it has."""
    spark_submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    told = subprocess.run([spark_submit, "--help"], capture_output=True, text=True)
    return set(re.findall(r"--[a-z-]+", told.stdout + told.stderr))


@pytest.mark.parametrize("block", claimed(SUBMITTED), ids=str)
def test_spark_submit_knows_its_options(block: Block, options: set[str]) -> None:
    submits = [words for words in commands(block) if words[0] == "spark-submit"]
    assert submits
    for words in submits:
        assert {word for word in words if word.startswith("--")} <= options
        for before, after in pairwise(words):
            assert before != "--conf" or re.fullmatch(r"spark\.[\w.]+=\S+", after), after


@pytest.mark.parametrize("block", claimed(VALIDATED), ids=str)
def test_kubernetes_knows_the_object(block: Block) -> None:
    kubernetes_validate.validate(yaml.safe_load(block.text), KUBERNETES, strict=True)


@pytest.mark.parametrize("block", claimed(BASED), ids=str)
def test_an_image_gets_what_the_project_asks_for(block: Block) -> None:
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    said = [Requirement(text) for text in re.findall(r'"([a-z]+[<>=!][^"]*)"', block.text)]
    assert {one.name for one in said} == {"tableside", "pandas"}
    [pandas] = [one for one in said if one.name == "pandas"]
    assert pandas in [Requirement(text) for text in wanted["spark"]]


def test_the_packages_of_the_zip_file_are_those_that_were_tried() -> None:
    [block] = [
        block for block in every_block() if block.page == "docs/spark-deployment.md" and "--py-files" in block.text
    ]
    [install] = [words for words in commands(block) if words[:2] == ["pip", "install"]]
    named = install[install.index("packages") + 1 :]
    assert set(named) == {"tableside", *(Path(name).stem for name in environments.PURE)}
