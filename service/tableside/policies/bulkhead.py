"""Limits the concurrent calls of a table's store, so that they do not pile up when the store is slow.

Calls wait in order of arrival, until their deadline. Scans and splits count as calls. The table's deadline cancels
them.
"""

import asyncio
from collections.abc import Sequence

from ..core import NO_DEADLINE, Budget, Operation, Outcome, Page, Scan, Store
from ..core.errors import Overloaded
from ..core.store import Policy
from ..telemetry import Traces, wait_span
from .metrics import PolicyMetrics


class Bulkhead(Policy):
    """A store with at most `concurrency_max` concurrent calls."""

    def __init__(
        self, inner: Store, concurrency_max: int, *, metrics: PolicyMetrics | None = None, traces: Traces | None = None
    ) -> None:
        super().__init__(inner)
        self._slots = asyncio.Semaphore(concurrency_max)
        self._concurrency_max = concurrency_max
        self._traces = traces
        counter = (metrics or PolicyMetrics()).bulkhead_calls
        self._waited, self._refused = (counter.labels(inner.spec.name, outcome) for outcome in ("waited", "refused"))

    async def apply(self, operations: Sequence[Operation], budget: Budget = NO_DEADLINE) -> Sequence[Outcome]:
        """Send the operations when a slot is free. Without one by the deadline, return Overloaded and send none."""
        if not await self._acquire(budget):
            limit = f"{self._concurrency_max} calls of its store (concurrency_max)"
            detail = f"table {self.spec.name!r}: {limit} were in flight until the deadline"
            return [Overloaded(detail)] * len(operations)
        try:
            return await self._inner.apply(operations, budget)
        finally:
            self._slots.release()

    async def scan(self, scan: Scan) -> Page:
        """Send the scan when a slot is free."""
        await self._acquire()
        try:
            return await self._inner.scan(scan)
        finally:
            self._slots.release()

    async def splits(self, count_max: int) -> list[bytes]:
        """Send the request when a slot is free."""
        await self._acquire()
        try:
            return await self._inner.splits(count_max)
        finally:
            self._slots.release()

    async def _acquire(self, budget: Budget = NO_DEADLINE) -> bool:
        """Wait for a slot. Return whether it was free by the deadline."""
        if not self._slots.locked():
            return await self._slots.acquire()
        try:
            with wait_span(self._traces, "bulkhead wait"):
                async with budget.timeout():
                    await self._slots.acquire()
        except TimeoutError:
            self._refused.inc()
            return False
        self._waited.inc()
        return True
