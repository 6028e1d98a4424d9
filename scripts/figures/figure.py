"""Read a figure's YAML file and return its SVG, which follows the reader's light or dark color scheme."""

from html import escape
from pathlib import Path
from typing import Any

import yaml

from . import boxes, sequence

SOURCES = Path(__file__).parent
NAMES = sorted(file.stem for file in SOURCES.glob("*.yaml"))
STYLE = """
svg { --paper: #ffffff; --ink: #16202a; --soft: #44505c; --line: #5b6b7b; --alert: #b3261e;
  --client: #f1e9f6; --service: #e3eef8; --policy: #dcebdc; --store: #f5eddb; --area: #f6f8fa; }
@media (prefers-color-scheme: dark) { svg { --paper: #161b22; --ink: #e6edf3; --soft: #b1bac4; --line: #8b98a5;
  --alert: #ff8a80; --client: #3a2d47; --service: #1f3a52; --policy: #24402a; --store: #473a1c; --area: #1e242c; } }
text { fill: var(--ink); } .soft { fill: var(--soft); } .alert { fill: var(--alert); }
rect { stroke: var(--line); } .paper { fill: var(--paper); stroke: none; } .area { fill: var(--area); }
.client { fill: var(--client); } .service { fill: var(--service); } .policy { fill: var(--policy); }
.store { fill: var(--store); } path { stroke: var(--line); fill: none; } .head { fill: var(--line); stroke: none; }
.lost { stroke: var(--alert); }
""".strip()
MARKER = (
    '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path class="head" d="M0 0 L8 4 L0 8 z"/></marker></defs>'
)


def svg(name: str) -> str:
    """Return the SVG of a figure.

    Raises:
        ValueError: A text does not fit into its box.
    """
    source: dict[str, Any] = yaml.safe_load((SOURCES / f"{name}.yaml").read_text(encoding="utf-8"))
    drawn = sequence.draw(source) if "actors" in source else boxes.draw(source)
    size = f"0 0 {drawn.width} {drawn.height}"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{size}" font-family="sans-serif" font-size="13">',
            f"<title>{escape(source['title'])}</title>",
            f"<style>{STYLE}</style>",
            MARKER,
            f'<rect class="paper" width="{drawn.width}" height="{drawn.height}" rx="8"/>',
            *drawn.elements,
            "</svg>\n",
        ]
    )
