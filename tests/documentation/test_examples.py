"""Blocks of pages that cannot run are well-formed, and the options, modules and extras in them exist."""

import json
import re
import shlex
import tomllib

import pytest
from packaging.requirements import Requirement

from documentation.blocks import Block, every_block
from documentation.claims import CONTAINED, INSTALLED, NAMED, READ, claims_of
from documentation.verbs import options_of
from scripts.bootstrap import ROOT


def claimed(test: str) -> list[Block]:
    return [block for block in every_block() if test in [claim.test for claim in claims_of(block)]]


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
            check_command(after_image(given), has_program="--entrypoint" in given)


def after_image(given: list[str]) -> list[str]:
    """Return the command for the container: the words after the image's name, or after an ellipsis that includes it."""
    image = next(at for at, word in enumerate(given) if word in ("tableside", "…") and given[at - 1] != "--name")
    return given[image + 1 :]


def check_command(command: list[str], *, has_program: bool) -> None:
    if has_program:
        assert command[0] == "-c"
        compile(command[1], "the page", "exec")
    elif command:
        assert {word for word in command if word.startswith("--")} <= options_of(command)
