"""The health of a table: a level, a label and the reason, so that an operator sees immediately where to look."""

from typing import Literal

import msgspec

from ...core import StoreUnavailable
from . import numbers
from .counts import FAILURES, SHED, Change

ERROR_RATE_CRITICAL = 0.05
ERROR_RATE_WARNING = 0.001

LATENCY_SHARE_WARNING = 0.25
"""From this share of a table's deadline on, the 99th percentile of the latency is a warning."""

Level = Literal["critical", "warning", "ok"]

LEVELS: tuple[Level, ...] = ("critical", "warning", "ok")


class Health(msgspec.Struct, frozen=True):
    """The level, a label for it, and the reason, which is empty if the level is ok."""

    level: Level
    label: str
    reason: str = ""

    @property
    def rank(self) -> int:
        """Return the sort key of the level: 0 for the worst."""
        return LEVELS.index(self.level)


def table_health(change: Change | None, unreachable: StoreUnavailable | None, deadline_s: float) -> Health:
    """Judge a table by its recent counters, and by whether its store can be reached."""
    if unreachable is not None:
        return Health("critical", "store unreachable", unreachable.detail)
    if change is None or not change.operations:
        return Health("ok", "idle")
    error_rate = change.failed_share or 0.0
    if error_rate >= ERROR_RATE_WARNING:
        most_frequent = max(FAILURES, key=lambda code: change[code])
        reason = f"{numbers.share(error_rate)} of operations failed; most frequent error: {most_frequent}"
        critical = error_rate >= ERROR_RATE_CRITICAL
        return Health("critical", "high error rate", reason) if critical else Health("warning", "errors", reason)
    p99_s = change.latency_s(0.99) or 0.0
    if p99_s >= deadline_s * LATENCY_SHARE_WARNING:
        reason = f"p99 latency is {numbers.seconds(p99_s)}, the deadline is {numbers.seconds(deadline_s)}"
        return Health("warning", "high latency", reason)
    return Health("ok", "OK")


def load_shedding(total: Change | None) -> Health | None:
    """Return the health of a service that rejects requests because it is overloaded, None if it rejects none.

    `total` is the change of all tables together. Rejected requests have no outcome in any table.
    """
    if total is None or not total[SHED]:
        return None
    reason = f"{numbers.rate(total.per_s(SHED))} requests rejected with 503, because a limit in flight was reached"
    return Health("warning", "load shedding", reason)
