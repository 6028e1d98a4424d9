"""Whether a table is well, in one word and one reason, so that who is called sees at once where to look."""

from typing import Literal

import msgspec

from ...core import StoreUnavailable
from . import numbers
from .counts import FAILURES, Change

FAILING_SHARE = 0.05
STRAINED_SHARE = 0.001

SLOW_SHARE = 0.5
"""Which share of a table's deadline the slowest hundredth may take."""

Level = Literal["ill", "strained", "well"]

LEVELS: tuple[Level, ...] = ("ill", "strained", "well")


class Verdict(msgspec.Struct, frozen=True):
    """How ill, the word for it, and why; nothing need be said of what is well."""

    level: Level
    word: str
    why: str = ""

    @property
    def rank(self) -> int:
        """Return a number that is the smaller the worse."""
        return LEVELS.index(self.level)


def verdict(change: Change | None, unreachable: StoreUnavailable | None, deadline_s: float) -> Verdict:
    """Return how a table is by what happened lately, and by whether its store can be reached."""
    if unreachable is not None:
        return Verdict("ill", "store unreachable", unreachable.detail)
    if change is None or not change.operations:
        return Verdict("well", "idle")
    failed = change.failed or 0.0
    if failed >= STRAINED_SHARE:
        worst = max(FAILURES, key=lambda code: change[code])
        why = f"{numbers.share(failed)} of the operations failed, most of them {worst}"
        return Verdict("ill", "failing", why) if failed >= FAILING_SHARE else Verdict("strained", "some fail", why)
    slowest_s = change.latency_s(0.99) or 0.0
    if slowest_s >= deadline_s * SLOW_SHARE:
        why = f"one in a hundred takes {numbers.seconds(slowest_s)}, of {numbers.seconds(deadline_s)} that it may"
        return Verdict("strained", "slow", why)
    return Verdict("well", "well")
