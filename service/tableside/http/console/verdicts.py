"""The state of a table in one word and one reason, so that an operator sees immediately where to look."""

from typing import Literal

import msgspec

from ...core import StoreUnavailable
from . import numbers
from .counts import FAILURES, Change

FAILING_SHARE = 0.05
STRAINED_SHARE = 0.001

SLOW_SHARE = 0.5
"""The share of a table's deadline from which the 99th percentile of the latency counts as slow."""

Level = Literal["ill", "strained", "well"]

LEVELS: tuple[Level, ...] = ("ill", "strained", "well")


class Verdict(msgspec.Struct, frozen=True):
    """The level, a word for it, and the reason, which is empty if all is well."""

    level: Level
    word: str
    why: str = ""

    @property
    def rank(self) -> int:
        """Return the sort key of the level: 0 for the worst."""
        return LEVELS.index(self.level)


def verdict(change: Change | None, unreachable: StoreUnavailable | None, deadline_s: float) -> Verdict:
    """Judge a table by its recent counters, and by whether its store can be reached."""
    if unreachable is not None:
        return Verdict("ill", "store unreachable", unreachable.detail)
    if change is None or not change.operations:
        return Verdict("well", "idle")
    failed = change.failed_share or 0.0
    if failed >= STRAINED_SHARE:
        worst = max(FAILURES, key=lambda code: change[code])
        why = f"{numbers.share(failed)} of the operations failed, most of them {worst}"
        return Verdict("ill", "failing", why) if failed >= FAILING_SHARE else Verdict("strained", "some fail", why)
    slowest_s = change.latency_s(0.99) or 0.0
    if slowest_s >= deadline_s * SLOW_SHARE:
        why = f"one in a hundred takes {numbers.seconds(slowest_s)}, of {numbers.seconds(deadline_s)} that it may"
        return Verdict("strained", "slow", why)
    return Verdict("well", "well")
