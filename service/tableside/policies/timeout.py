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

from prometheus_client import CollectorRegistry, Counter

from ..core import DeadlineExceeded, Operation, Outcome, Store, StoreUnavailable, TableError
from ..core.directions import (
    DIRECTIONS,
    all_succeeded,
    applied_if_unanswered,
    apply_by_direction,
    count_reads,
    direction,
)
from ..core.store import Policy

GRACE_S = 0.1
"""Extra time after the timeout for the store to return and report the operations that it has finished."""

GRACE_AT_DEADLINE_S = GRACE_S / 2
"""Extra time at the caller's deadline: shorter than that of the table, which would lose the finished outcomes."""


class TimeoutMetrics:
    """The metrics that the tables of one catalog share."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.operations = Counter(
            "tableside_attempt_timeouts",
            "Operations that timed out in one attempt, counted for each attempt.",
            ("table", "direction"),
            registry=registry,
        )


class Timeout(Policy):
    """A store with a timeout for each call.

    `read_s` and `write_s` are seconds above 0, or None for no limit except the caller's deadline. A call with reads and
    writes is divided if their timeouts make a difference.
    """

    def __init__(
        self, inner: Store, *, read_s: float | None, write_s: float | None, metrics: TimeoutMetrics | None = None
    ) -> None:
        super().__init__(inner)
        self._read_s = _checked(read_s)
        self._write_s = _checked(write_s)
        table = inner.spec.name
        self._counters = {name: metrics.operations.labels(table, name) for name in DIRECTIONS} if metrics else {}

    async def apply(self, operations: Sequence[Operation], until: float = math.inf) -> Sequence[Outcome]:
        """Send the operations with an earlier deadline."""
        now = time.monotonic()
        read_until, write_until = min(until, now + self._read_s), min(until, now + self._write_s)
        if read_until == write_until:
            return await self._attempt(operations, read_until, until)
        if (gets := count_reads(operations)) in (0, len(operations)):
            return await self._attempt(operations, read_until if gets else write_until, until)
        return await apply_by_direction(
            operations,
            lambda some: self._attempt(some, read_until, until),
            lambda some: self._attempt(some, write_until, until),
        )

    async def _attempt(self, operations: Sequence[Operation], limit: float, until: float) -> Sequence[Outcome]:
        if limit == math.inf:
            return await self._inner.apply(operations, until)
        try:
            async with asyncio.timeout_at(min(limit + GRACE_S, until + GRACE_AT_DEADLINE_S)) as bound:
                outcomes = await self._inner.apply(operations, limit)
        except TimeoutError:
            if not bound.expired():
                raise
            outcomes = [self._deadline_exceeded(operation) for operation in operations]
        if limit == until or all_succeeded(outcomes):
            return outcomes
        return [self._as_unavailable(*both) for both in zip(operations, outcomes, strict=True)]

    def _deadline_exceeded(self, operation: Operation) -> TableError:
        detail = f"table {self.spec.name!r}: the deadline was over, and the store did not return by itself"
        return DeadlineExceeded(detail, applied=applied_if_unanswered(operation))

    def _as_unavailable(self, operation: Operation, outcome: Outcome) -> Outcome:
        """Convert DeadlineExceeded of the attempt, but not of the caller's deadline, to StoreUnavailable."""
        if not isinstance(outcome, DeadlineExceeded):
            return outcome
        way = direction(operation)
        if way in self._counters:
            self._counters[way].inc()
        timeout_s = self._read_s if way == "read" else self._write_s
        detail = f"table {self.spec.name!r}: the store did not finish the {way} within the timeout_s of {timeout_s:g} s"
        return StoreUnavailable(detail, applied=outcome.applied)


def _checked(timeout_s: float | None) -> float:
    if timeout_s is None:
        return math.inf
    if not timeout_s > 0:
        raise ValueError("a timeout must be above 0 s")
    return timeout_s
