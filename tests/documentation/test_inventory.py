"""An existing test runs, compares or checks every code block of the README and the pages."""

import re

import pytest

from documentation.blocks import Block, every_block, pages
from documentation.claims import CLAIMS, Claim, claims_of
from scripts.bootstrap import ROOT

TESTS = ROOT / "tests"


@pytest.mark.parametrize("block", every_block(), ids=str)
def test_every_block_is_claimed(block: Block) -> None:
    assert claims_of(block), f"{block} is claimed by no test: see tests/documentation/claims.py\n{block.text}"


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: f"{claim.page} {claim.language} {claim.containing}")
def test_a_claim_names_an_existing_block_and_an_existing_test(claim: Claim) -> None:
    assert any(claim.covers(block) for block in every_block())
    file, _, name = claim.test.partition("::")
    assert re.search(rf"^\s*(async )?def {name}\b", (TESTS / file).read_text(encoding="utf-8"), re.MULTILINE)


def test_the_pages_are_found() -> None:
    assert {"README.md", "docs/index.md", "docs/quick-start.md"} <= set(pages())
    assert len(every_block()) > 30
