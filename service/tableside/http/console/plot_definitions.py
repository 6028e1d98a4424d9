"""The definitions of the plots of a table, or of all tables together."""

import math
from collections.abc import Callable, Iterator

import msgspec

from . import numbers
from .counts import Change
from .history import History
from .plots import Plot, Points, above_zero, plot

STEP_S = 6.0

Value = Callable[[Change], float | None]


class _PlotDefinition(msgspec.Struct, frozen=True):
    """A plot: title, description, number format, lines (name, CSS class, value), and the bounds of its axis's end.

    `alerts` draws the parts of the lines that are above zero in the color of an alert.
    """

    title: str
    description: str
    format_value: Callable[[float | None], str]
    lines: tuple[tuple[str, str, Value], ...]
    top_min: float = 0.0
    top_max: float = math.inf
    alerts: bool = False


_PLOTS = (
    _PlotDefinition(
        "Operations",
        "Completed operations per second. A batch counts as its operations.",
        numbers.rate,
        (
            ("reads", "first", lambda change: change.per_s("reads")),
            ("writes", "second", lambda change: change.per_s("writes")),
        ),
    ),
    _PlotDefinition(
        "Latency",
        "Time from the start to the outcome of an operation: median (p50) and 99th percentile (p99).",
        numbers.seconds,
        (
            ("p50", "first", lambda change: change.latency_s(0.5)),
            ("p99", "second", lambda change: change.latency_s(0.99)),
        ),
    ),
    _PlotDefinition(
        "Error rate",
        "Share of operations that failed for a reason other than the request itself.",
        numbers.share,
        (("error rate", "quiet", lambda change: change.failed_share),),
        0.01,
        1.0,
        alerts=True,
    ),
    _PlotDefinition(
        "Cache hit ratio",
        "Share of gets that were answered from the cache.",
        numbers.share,
        (("hit ratio", "first", lambda change: change.hit_share),),
        1.0,
        1.0,
    ),
)


def build_plots(history: History, table: str | None = None) -> list[Plot]:
    """Return the plots of a table, or of all tables together."""
    now, changes = history.now(table), list(history.changes(table, step_s=STEP_S))
    return [
        plot(
            definition.title,
            definition.description,
            list(_lines(definition, changes, now)),
            definition.format_value,
            top_min=definition.top_min,
            top_max=definition.top_max,
        )
        for definition in _PLOTS
    ]


def _lines(
    definition: _PlotDefinition, changes: list[tuple[float, Change]], now: Change | None
) -> Iterator[tuple[str, str, Points, float | None]]:
    for name, css_class, value in definition.lines:
        points = _points(changes, value)
        yield name, css_class, points, None if now is None else value(now)
        if definition.alerts:
            yield "", "bad", above_zero(points), None


def _points(changes: list[tuple[float, Change]], value: Value) -> Points:
    return [(ago_s, value(change)) for ago_s, change in changes]
