"""What pages show and nobody can run: it is what it says it is, and names what there is."""

import json
import re
import tomllib

import pytest
from packaging.requirements import Requirement

from documentation.blocks import ROOT, Block, every_block
from documentation.claims import DRAWN, INSTALLED, NAMED, READ, claims_of

COLUMNS_MAX = 84
"""What a drawing may be wide, to be seen as one."""


def claimed(test: str) -> list[Block]:
    return [block for block in every_block() if test in [claim.test for claim in claims_of(block)]]


@pytest.mark.parametrize("block", claimed(READ), ids=str)
def test_json_that_is_shown_is_json(block: Block) -> None:
    assert isinstance(json.loads(block.text), dict | list)


@pytest.mark.parametrize("block", claimed(INSTALLED), ids=str)
def test_what_is_installed_is_what_the_project_has(block: Block) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [Requirement(text) for text in re.findall(r"'?(tableside(?:\[[\w,]+\])?)'?$", block.text, re.MULTILINE)]
    assert wanted
    assert {extra for one in wanted for extra in one.extras} <= project["optional-dependencies"].keys()


@pytest.mark.parametrize("block", claimed(DRAWN), ids=str)
def test_a_drawing_fits_a_screen(block: Block) -> None:
    assert max(map(len, block.text.splitlines())) <= COLUMNS_MAX
    assert block.text.isascii()


@pytest.mark.parametrize("block", claimed(NAMED), ids=str)
def test_modules_that_are_named_are_there(block: Block) -> None:
    service = ROOT / "service" / "tableside"
    there = {path.stem for path in service.iterdir()} | {"command", "line"}
    assert set(re.findall(r"[a-z_]+", block.text)) <= there
