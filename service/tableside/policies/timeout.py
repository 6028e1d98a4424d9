"""Timeouts of single attempts: the store has `read_s` or `write_s` seconds for a call, even if the caller has more.

If an attempt times out before the caller's deadline, its operations get StoreUnavailable, which can be retried.
DeadlineExceeded always means that the caller's deadline has passed, and is never retried. A store that returns by
itself reports which writes were not applied. If it has to be cancelled, its writes are "unknown".

Scans have no timeout here. The table's deadline limits them.
"""

import asyncio
import math
import time
from collections.abc import Sequence

from ..core import NO_DEADLINE, Budget, DeadlineExceeded, Operation, Outcome, Store, StoreUnavailable
from ..core.batch import Direction, all_succeeded, direction
from ..core.store import Policy
from .metrics import PolicyMetrics

GRACE_S = 0.1
"""Extra time after the timeout for the store to return and report the operations that it has finished."""

GRACE_AT_DEADLINE_S = GRACE_S / 2
"""Extra time at the caller's deadline: shorter than that of the table, which would lose the finished outcomes."""


class Timeout(Policy):
    """A store with a timeout for each call.

    `read_s` and `write_s` are seconds above 0, or None for no limit except the caller's deadline.
    """

    def __init__(
        self, inner: Store, *, read_s: float | None, write_s: float | None, metrics: PolicyMetrics | None = None
    ) -> None:
        super().__init__(inner)
        self._timeouts_s: dict[Direction, float] = {"read": read_s or math.inf, "write": write_s or math.inf}
        counter = (metrics or PolicyMetrics()).timeouts
        self._counters = {way: counter.labels(inner.spec.name, way) for way in self._timeouts_s}

    async def apply(self, operations: Sequence[Operation], budget: Budget = NO_DEADLINE) -> Sequence[Outcome]:
        """Send the operations with an earlier deadline."""
        way = direction(operations)
        timeout_s = self._timeouts_s[way]
        limited = budget.limited(time.monotonic() + timeout_s)
        if limited.until == math.inf:
            return await self._inner.apply(operations, budget)
        try:
            async with asyncio.timeout_at(min(limited.until + GRACE_S, budget.until + GRACE_AT_DEADLINE_S)) as bound:
                outcomes = await self._inner.apply(operations, limited)
        except TimeoutError:
            if not bound.expired():
                raise
            outcomes = budget.unanswered(operations)
        if limited is budget or all_succeeded(outcomes):
            return outcomes
        return [self._as_unavailable(outcome, way, timeout_s) for outcome in outcomes]

    def _as_unavailable(self, outcome: Outcome, way: Direction, timeout_s: float) -> Outcome:
        """Convert DeadlineExceeded of the attempt, but not of the caller's deadline, to StoreUnavailable."""
        if not isinstance(outcome, DeadlineExceeded):
            return outcome
        self._counters[way].inc()
        detail = f"table {self.spec.name!r}: the store did not finish the {way} within the timeout_s of {timeout_s:g} s"
        return StoreUnavailable(detail, applied=outcome.applied)
