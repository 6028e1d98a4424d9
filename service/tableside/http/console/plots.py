"""The coordinates of SVG plots: lines, and marks on the axes. The style sheet defines the appearance.

One unit is about one pixel. The time axis spans the history, with the latest sample at the right.
"""

import math
from collections.abc import Callable, Iterable, Sequence

import msgspec

from .history import SPAN_S

WIDTH, HEIGHT = 320.0, 132.0
LEFT, RIGHT, TOP, BOTTOM = 56.0, 8.0, 8.0, 20.0

SPARK_WIDTH, SPARK_HEIGHT = 120.0, 24.0

_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
_MARKS_AT_MIN = (10, 5, 0)

Points = Sequence[tuple[float, float | None]]
"""Pairs of an age in seconds and a value, latest last. None as the value leaves a gap."""


class Line(msgspec.Struct, frozen=True):
    """One line of a plot: its name, CSS class, SVG path, and formatted current value.

    The legend shows only lines with a name.
    """

    name: str
    css_class: str
    path: str
    now: str


class Mark(msgspec.Struct, frozen=True):
    """A mark on an axis."""

    position: float
    text: str


class Spark(msgspec.Struct, frozen=True):
    """A sparkline: its SVG path, and the value at the top of its scale, which differs between sparklines."""

    path: str
    top: float


class Plot(msgspec.Struct, frozen=True):
    """A plot, ready for the template."""

    title: str
    description: str
    lines: list[Line]
    rows: list[Mark]
    columns: list[Mark]
    most: str
    empty: bool


def plot(
    title: str,
    description: str,
    lines: Iterable[tuple[str, str, Points, float | None]],
    format_value: Callable[[float | None], str],
    *,
    top_min: float = 0.0,
    top_max: float = math.inf,
) -> Plot:
    """Return a plot of lines. Each line is a name, a CSS class, points, and the current value.

    `format_value` formats a value. The axis ends at a round number that is not below any point or `top_min`, and
    not above `top_max`.
    """
    lines = list(lines)
    values = [value for _, _, points, _ in lines for _, value in points if value is not None]
    top = min(top_max, round_up(max([*values, top_min]) or 1.0))
    return Plot(
        title,
        description,
        [Line(name, css_class, _path(points, top), format_value(now)) for name, css_class, points, now in lines],
        [Mark(_y(part, 1.0), format_value(top * part) if part else "0") for part in (0.0, 0.5, 1.0)],
        [Mark(_x(minutes * 60), f"\N{MINUS SIGN}{minutes} min" if minutes else "now") for minutes in _MARKS_AT_MIN],
        format_value(max(values, default=None)),
        not values,
    )


def spark(points: Points) -> Spark:
    """Return a sparkline: a line without axes that fills the height."""
    highest = max((value for _, value in points if value is not None), default=0.0)
    top = highest or 1.0
    coordinates = [
        None if value is None else ((1 - ago_s / SPAN_S) * SPARK_WIDTH, 1 + (1 - value / top) * (SPARK_HEIGHT - 2))
        for ago_s, value in points
    ]
    return Spark(_svg_path(coordinates), highest)


def above_zero(points: Points) -> Points:
    """Return the points above zero and their neighbors. The values of others become None."""
    values = [0.0, *(value or 0.0 for _, value in points), 0.0]
    return [
        (ago_s, value if max(values[index : index + 3]) > 0 else None) for index, (ago_s, value) in enumerate(points)
    ]


def round_up(value: float) -> float:
    """Round a positive value up to 1, 2, 2.5 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in _STEPS if step * power >= value * (1 - 1e-9))


def _path(points: Points, top: float) -> str:
    return _svg_path([None if value is None else (_x(ago_s), _y(min(value, top), top)) for ago_s, value in points])


def _svg_path(coordinates: Iterable[tuple[float, float] | None]) -> str:
    """Return the path through coordinates. None breaks the line, and a single coordinate becomes a dot."""
    words, pen = [], "M"
    for point in coordinates:
        if point is None:
            pen = "M"
            continue
        words.append(f"{pen}{point[0]:.1f} {point[1]:.1f}" + ("h.1" if pen == "M" else ""))
        pen = "L"
    return "".join(words)


def _x(ago_s: float) -> float:
    return LEFT + (1 - ago_s / SPAN_S) * (WIDTH - LEFT - RIGHT)


def _y(value: float, top: float) -> float:
    return TOP + (1 - value / top) * (HEIGHT - TOP - BOTTOM)
