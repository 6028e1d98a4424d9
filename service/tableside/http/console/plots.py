"""Plots as SVG: their definitions, lines, and marks on the axes. The style sheet defines the appearance.

One unit is about one pixel. The time axis spans the history, with the latest sample at the right.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from . import numbers
from .console import SPAN_S, Change, History

WIDTH, HEIGHT = 320.0, 132.0
LEFT, RIGHT, TOP, BOTTOM = 56.0, 8.0, 8.0, 20.0

SPARK_WIDTH, SPARK_HEIGHT = 120.0, 24.0

STEP_S = 6.0

_ROUND = (1.0, 2.0, 2.5, 5.0, 10.0)
_MARKS_AT_MIN = (10, 5, 0)

Points = Sequence[tuple[float, float | None]]
"""Pairs of an age in seconds and a value, latest last. None as the value leaves a gap."""

Value = Callable[[Change], float | None]


class PlotDefinition(msgspec.Struct, frozen=True):
    """A plot: title, description, number format, lines (name, CSS class, value), and the bounds of its axis's end.

    `alerts` draws the parts of the lines that are above zero in the color of an alert.
    """

    title: str
    description: str
    format_value: Callable[[float | None], str]
    lines: tuple[tuple[str, str, Value], ...] = ()
    top_min: float = 0.0
    top_max: float = math.inf
    alerts: bool = False


_PLOTS = (
    PlotDefinition(
        "Operations",
        "Completed operations per second. A batch counts as its operations.",
        numbers.rate,
        (
            ("reads", "first", lambda change: change.per_s("reads")),
            ("writes", "second", lambda change: change.per_s("writes")),
        ),
    ),
    PlotDefinition(
        "Latency",
        "Time from the start to the outcome of an operation: median (p50) and 99th percentile (p99).",
        numbers.seconds,
        (
            ("p50", "first", lambda change: change.latency_s(0.5)),
            ("p99", "second", lambda change: change.latency_s(0.99)),
        ),
    ),
    PlotDefinition(
        "Error rate",
        "Share of operations that failed for a reason other than the request itself.",
        numbers.share,
        (("error rate", "quiet", lambda change: change.failed_share),),
        0.01,
        1.0,
        alerts=True,
    ),
    PlotDefinition(
        "Cache hit ratio",
        "Share of gets that were answered from the cache.",
        numbers.share,
        (("hit ratio", "first", lambda change: change.hit_share),),
        1.0,
        1.0,
    ),
)


class Line(msgspec.Struct, frozen=True):
    """One line of a plot: its name, CSS class, points, and current value. The legend shows only lines with a name."""

    name: str
    css_class: str
    points: Points
    now: float | None = None


class Mark(msgspec.Struct, frozen=True):
    """A mark on an axis."""

    position: float
    text: str


class Plot(msgspec.Struct, frozen=True):
    """A plot, ready for the template. `lines` have a name, a CSS class, an SVG path and the formatted current value."""

    title: str
    description: str
    lines: list[dict[str, str]]
    rows: list[Mark]
    columns: list[Mark]
    most: str
    empty: bool


def build_plots(history: History, table: str | None = None) -> list[Plot]:
    """Return the plots of a table, or of all tables together."""
    now, changes = history.now(table), list(history.changes(table, step_s=STEP_S))
    return [plot(definition, list(_lines(definition, changes, now))) for definition in _PLOTS]


def _lines(definition: PlotDefinition, changes: list[tuple[float, Change]], now: Change | None) -> Iterator[Line]:
    for name, css_class, value in definition.lines:
        points = [(ago_s, number) for ago_s, change in changes if (number := value(change)) is not None]
        yield Line(name, css_class, points, None if now is None else value(now))
        if definition.alerts:
            yield Line("", "bad", above_zero(points))


def plot(definition: PlotDefinition, lines: Sequence[Line]) -> Plot:
    """Return a plot of lines.

    The axis ends at a round number that is not below any point or `top_min`, and not above `top_max`.
    """
    values = [value for line in lines for _, value in line.points if value is not None]
    top = min(definition.top_max, round_up(max([*values, definition.top_min]) or 1.0))
    text = definition.format_value
    return Plot(
        definition.title,
        definition.description,
        [
            {"name": line.name, "css_class": line.css_class, "path": _path(line.points, top), "now": text(line.now)}
            for line in lines
        ],
        [Mark(_y(part, 1.0), text(top * part) if part else "0") for part in (0.0, 0.5, 1.0)],
        [Mark(_x(minutes * 60), f"\N{MINUS SIGN}{minutes} min" if minutes else "now") for minutes in _MARKS_AT_MIN],
        text(max(values, default=None)),
        not values,
    )


class Spark(msgspec.Struct, frozen=True):
    """A sparkline: its SVG path, and the value at the top of its scale, which differs between sparklines."""

    path: str
    top: float


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
    return next(step * power for step in _ROUND if step * power >= value * (1 - 1e-9))


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
