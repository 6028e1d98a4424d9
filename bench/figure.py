"""The ratios of a comparison as an SVG picture with colors for light and dark pages."""

from collections.abc import Collection, Sequence
from html import escape
from pathlib import Path

from .report import Result

WIDTH, LEFT, RIGHT, TOP, ROW = 720, 270, 70, 46, 34
BAR = 16

STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1f2933 }
.note { font-size: 11px; fill: #52606d }
.bar { fill: #2f6fb0 }
.paper { fill: #ffffff }
.one { stroke: #52606d; stroke-dasharray: 3 3 }
@media (prefers-color-scheme: dark) {
  text { fill: #e4e7eb }
  .note { fill: #9aa5b1 }
  .bar { fill: #6ba6e0 }
  .paper { fill: #161b22 }
  .one { stroke: #9aa5b1 }
}
"""


def write(results: Sequence[Result], title: str, ways: Collection[str], file: Path) -> None:
    """Draw the ratios of `ways` to the first variant of their groups, one bar for each."""
    baselines: dict[str, str] = {}
    for result in results:
        baselines.setdefault(result.group, result.way)
    bars = [
        (result.group, f"{result.way} / {baselines[result.group]}", result.ratio)
        for result in results
        if result.way in ways
    ]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(_picture(title, bars), encoding="utf-8")


def _picture(title: str, bars: Sequence[tuple[str, str, float]]) -> str:
    scale = (WIDTH - LEFT - RIGHT) / max(1.0, *(ratio for _, _, ratio in bars))
    height, one = TOP + ROW * len(bars) + 10, LEFT + scale
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
            f"<title>{escape(title)}</title>",
            f"<style>{STYLE}</style>",
            f'<rect class="paper" width="{WIDTH}" height="{height}" rx="8"/>',
            f'<text x="12" y="18" font-weight="600">{escape(title)}</text>',
            *(_bar(index, *bar, scale) for index, bar in enumerate(bars)),
            f'<line class="one" x1="{one:.0f}" x2="{one:.0f}" y1="{TOP - 6}" y2="{height - 6}"/>',
            f'<text class="note" x="{one:.0f}" y="{TOP - 10}" text-anchor="middle">equal</text>',
            "</svg>\n",
        ]
    )


def _bar(index: int, group: str, note: str, ratio: float, scale: float) -> str:
    top = TOP + ROW * index
    return (
        f'<text x="12" y="{top + 13}">{escape(group)}</text>'
        f'<text class="note" x="12" y="{top + 26}">{escape(note)}</text>'
        f'<rect class="bar" x="{LEFT}" y="{top + 4}" width="{ratio * scale:.0f}" height="{BAR}" rx="2"/>'
        f'<text x="{LEFT + ratio * scale + 8:.0f}" y="{top + 17}">{ratio:.2f}</text>'
    )
