"""The page of the chart's values: the chart's README, with links adapted to the site."""

import re

from ..bootstrap import ROOT

CHART = ROOT / "helm" / "README.md"

NOTE = "This page is `helm/README.md`: `scripts/run python -m scripts.reference` renews it.\n"


def page() -> str:
    """Return the page."""
    heading, _, text = CHART.read_text(encoding="utf-8").partition("\n")
    return f"{heading}\n\n{NOTE}{_relinked(text)}"


def _relinked(text: str) -> str:
    return re.sub(r"\]\(\.\./docs/", "](../", text)
