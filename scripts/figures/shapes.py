"""Boxes, arrows and texts as SVG elements, and the finished drawing."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

SIZE, SMALL = 13, 11
PADDING = 4
Point = tuple[float, float]


@dataclass(frozen=True)
class Drawing:
    """The size of a drawing in pixels, and its elements."""

    width: int
    height: int
    elements: list[str]


def width_of(line: str, size: int, *, bold: bool = False) -> float:
    """Return an upper estimate of the width of a line in pixels, for the usual sans-serif fonts."""
    return len(line) * size * (0.60 if bold else 0.54)


def text(
    at: Point, line: str, *, small: bool = False, bold: bool = False, css: str = "", anchor: str = "middle"
) -> str:
    """Draw a line of text whose baseline begins, or has its middle, at a point."""
    style = f' class="{css}"' if css else ""
    size = f' font-size="{SMALL}"' if small else ""
    weight = ' font-weight="600"' if bold else ""
    return f'<text x="{at[0]:g}" y="{at[1]:g}" text-anchor="{anchor}"{style}{size}{weight}>{escape(line)}</text>'


def box(at: Sequence[float], kind: str, title: str, notes: Sequence[str] = ()) -> list[str]:
    """Draw a box with a title and notes, centered. An `area` has its title at the top.

    Raises:
        ValueError: A line is wider than the box, or the lines are higher.
    """
    x, y, width, height = at
    _require_space(width, height, title, notes)
    is_frame = kind == "area" and title
    top = y + 18 if is_frame else y + (height - 18 * bool(title) - 15 * len(notes)) / 2 + (13 if title else 11)
    middle = x + width / 2
    drawn = [f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6"/>']
    if title:
        drawn.append(text((middle, top), title, bold=True))
    first = top + 16 if title else top
    return drawn + [text((middle, first + 15 * row), note, small=True, css="soft") for row, note in enumerate(notes)]


def _require_space(width: float, height: float, title: str, notes: Sequence[str]) -> None:
    widths = [(title, width_of(title, SIZE, bold=True)), *((note, width_of(note, SMALL)) for note in notes)]
    for line, needed in widths:
        if needed > width - 2 * PADDING:
            raise ValueError(f"{line!r} needs {needed + 2 * PADDING:.0f} pixels, and its box has {width:g}")
    if 18 * bool(title) + 15 * len(notes) > height:
        raise ValueError(f"the lines of {title!r} are higher than the box")


def arrow(points: Sequence[Point], *, dashed: bool = False, css: str = "") -> str:
    """Draw a line through points, with a head at its end."""
    path = " L".join(f"{x:g} {y:g}" for x, y in points)
    style = (f' class="{css}"' if css else "") + (' stroke-dasharray="4 3"' if dashed else "")
    return f'<path d="M{path}"{style} marker-end="url(#head)"/>'
