"""A page shows each figure. Another test checks that the drawn figures are up to date."""

import re

import pytest

from scripts.bootstrap import ROOT
from scripts.figures import figure

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("name", figure.NAMES)
def test_a_page_shows_each_figure_with_a_description(name: str) -> None:
    shown = [page for page in PAGES if re.search(rf"!\[[^]]+\]\([^)]*images/{name}\.svg\)", page.read_text())]
    assert shown
