"""The definitions of the plots of a table, or of all tables together."""

import math
from collections.abc import Callable

import msgspec

from . import numbers
from .counts import Change
from .history import History
from .plots import Plot, Points, plot

STEP_S = 6.0

Value = Callable[[Change], float | None]


class _PlotDefinition(msgspec.Struct, frozen=True):
    """A plot: its title, number format, lines (name, CSS class, value), and the bounds of its axis's end."""

    title: str
    format_value: Callable[[float | None], str]
    lines: tuple[tuple[str, str, Value], ...]
    top_min: float = 0.0
    top_max: float = math.inf


_PLOTS = (
    _PlotDefinition(
        "Operations per second",
        numbers.count,
        (
            ("reads", "first", lambda change: change.per_s("reads")),
            ("writes", "second", lambda change: change.per_s("writes")),
        ),
    ),
    _PlotDefinition(
        "Latency",
        numbers.seconds,
        (
            ("p50", "first", lambda change: change.latency_s(0.5)),
            ("p99", "second", lambda change: change.latency_s(0.99)),
        ),
    ),
    _PlotDefinition("Failed", numbers.share, (("share", "bad", lambda change: change.failed_share),), 0.01, 1.0),
    _PlotDefinition("Cache hits", numbers.share, (("share", "first", lambda change: change.hit_share),), 1.0, 1.0),
)


def build_plots(history: History, table: str | None = None) -> list[Plot]:
    """Return the plots of a table, or of all tables together."""
    now, changes = history.now(table), list(history.changes(table, step_s=STEP_S))
    return [
        plot(
            definition.title,
            [
                (name, css_class, _points(changes, value), None if now is None else value(now))
                for name, css_class, value in definition.lines
            ],
            definition.format_value,
            top_min=definition.top_min,
            top_max=definition.top_max,
        )
        for definition in _PLOTS
    ]


def _points(changes: list[tuple[float, Change]], value: Value) -> Points:
    return [(ago_s, value(change)) for ago_s, change in changes]
