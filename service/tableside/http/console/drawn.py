"""Which plots there are, of a table or of all tables together, and what each line of them is."""

import math
from collections.abc import Callable

import msgspec

from . import numbers
from .counts import Change
from .history import History
from .plots import Plot, plot

STEP_S = 6.0

Value = Callable[[Change], float | None]


class _Drawing(msgspec.Struct, frozen=True):
    """A plot: how it writes values, its lines by name and look, and between what its axis ends."""

    title: str
    shown: Callable[[float | None], str]
    lines: tuple[tuple[str, str, Value], ...]
    least_top: float = 0.0
    most_top: float = math.inf


_DRAWINGS = (
    _Drawing(
        "Operations per second",
        numbers.count,
        (
            ("reads", "first", lambda change: change.per_s("reads")),
            ("writes", "second", lambda change: change.per_s("writes")),
        ),
    ),
    _Drawing(
        "Latency",
        numbers.seconds,
        (
            ("p50", "first", lambda change: change.latency_s(0.5)),
            ("p99", "second", lambda change: change.latency_s(0.99)),
        ),
    ),
    _Drawing("Failed", numbers.share, (("share", "bad", lambda change: change.failed),), 0.01, 1.0),
    _Drawing("Cache hits", numbers.share, (("share", "first", lambda change: change.hits),), 1.0, 1.0),
)


def plotted(history: History, table: str | None = None) -> list[Plot]:
    """Return the plots of a table, or of all tables together."""
    now, changes = history.now(table), list(history.changes(table, step_s=STEP_S))
    return [
        plot(
            drawing.title,
            [
                (name, look, [(ago_s, value(change)) for ago_s, change in changes], None if now is None else value(now))
                for name, look, value in drawing.lines
            ],
            drawing.shown,
            least_top=drawing.least_top,
            most_top=drawing.most_top,
        )
        for drawing in _DRAWINGS
    ]
