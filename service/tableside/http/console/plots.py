"""Plots as SVG: where the lines and the marks on the axes go. How they look is for the style sheet to say.

One unit is about one pixel. The time axis is that of the history, the newest at the right.
"""

import math
from collections.abc import Callable, Iterable, Sequence

import msgspec

from .history import SPAN_S

WIDTH, HEIGHT = 320.0, 132.0
LEFT, RIGHT, TOP, BOTTOM = 44.0, 8.0, 8.0, 20.0

SPARK_WIDTH, SPARK_HEIGHT = 120.0, 24.0

_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
_MARKS_AT_MIN = (10, 5, 0)

Points = Sequence[tuple[float, float | None]]
"""How many seconds ago, the latest last, and what was then; None leaves a gap."""


class Line(msgspec.Struct, frozen=True):
    """One line of a plot: its name, its class in the style sheet, and what it says now."""

    name: str
    look: str
    path: str
    now: str


class Mark(msgspec.Struct, frozen=True):
    """A mark on an axis."""

    place: float
    text: str


class Plot(msgspec.Struct, frozen=True):
    """A plot, ready to be written."""

    title: str
    lines: list[Line]
    rows: list[Mark]
    columns: list[Mark]
    most: str
    empty: bool


def plot(
    title: str,
    lines: Iterable[tuple[str, str, Points, float | None]],
    shown: Callable[[float | None], str],
    *,
    least_top: float = 0.0,
    most_top: float = math.inf,
) -> Plot:
    """Return a plot of lines: name, look, points, and the value now.

    `shown` writes a value. The axis goes from 0 to a round number that is above every point, and within the bounds.
    """
    lines = list(lines)
    values = [value for _, _, points, _ in lines for _, value in points if value is not None]
    top = min(most_top, round_up(max([*values, least_top]) or 1.0))
    return Plot(
        title,
        [Line(name, look, _path(points, top), shown(now)) for name, look, points, now in lines],
        [Mark(_y(part, 1.0), shown(top * part) if part else "0") for part in (0.0, 0.5, 1.0)],
        [Mark(_x(minutes * 60), f"\N{MINUS SIGN}{minutes} min" if minutes else "now") for minutes in _MARKS_AT_MIN],
        shown(max(values, default=None)),
        not values,
    )


def spark(points: Points) -> str:
    """Return the path of a line without axes, which fills its height."""
    top = max((value for _, value in points if value is not None), default=0.0) or 1.0
    spots = [
        None if value is None else ((1 - ago_s / SPAN_S) * SPARK_WIDTH, 1 + (1 - value / top) * (SPARK_HEIGHT - 2))
        for ago_s, value in points
    ]
    return _joined(spots)


def round_up(value: float) -> float:
    """Return the round number (1, 2, 2.5 or 5 times a power of ten) that is not below a positive value."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in _STEPS if step * power >= value * (1 - 1e-9))


def _path(points: Points, top: float) -> str:
    return _joined([None if value is None else (_x(ago_s), _y(min(value, top), top)) for ago_s, value in points])


def _joined(spots: Iterable[tuple[float, float] | None]) -> str:
    """Return the path through spots, broken where there is none; a spot alone becomes a dot."""
    words, pen = [], "M"
    for spot in spots:
        if spot is None:
            pen = "M"
            continue
        words.append(f"{pen}{spot[0]:.1f} {spot[1]:.1f}" + ("h.1" if pen == "M" else ""))
        pen = "L"
    return "".join(words)


def _x(ago_s: float) -> float:
    return LEFT + (1 - ago_s / SPAN_S) * (WIDTH - LEFT - RIGHT)


def _y(value: float, top: float) -> float:
    return TOP + (1 - value / top) * (HEIGHT - TOP - BOTTOM)
