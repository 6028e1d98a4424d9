"""Limits the concurrent calls of a table's store, so that they do not pile up when the store is slow.

Calls wait in order of arrival, until their deadline. Scans and splits count as calls. The table's deadline cancels
them.
"""

import asyncio
import math
from collections.abc import Sequence

from ..core import Operation, Outcome, Page, Scan, Store
from ..core.errors import Overloaded
from ..core.store import Policy
from ..telemetry import Traces, wait_span
from .metrics import PolicyMetrics


class Bulkhead(Policy):
    """A store with at most `concurrency_max` concurrent calls."""

    def __init__(
        self,
        inner: Store,
        concurrency_max: int,
        *,
        metrics: PolicyMetrics | None = None,
        traces: Traces | None = None,
    ) -> None:
        super().__init__(inner)
        if concurrency_max < 1:
            raise ValueError("concurrency_max must be at least 1")
        self._slots = asyncio.Semaphore(concurrency_max)
        self._concurrency_max = concurrency_max
        self._traces = traces
        counter = (metrics or PolicyMetrics()).bulkhead_calls
        self._waited, self._refused = (counter.labels(inner.spec.name, outcome) for outcome in ("waited", "refused"))

    async def apply(self, operations: Sequence[Operation], until: float = math.inf) -> Sequence[Outcome]:
        """Send the operations when a slot is free. Without a free slot by `until`, return Overloaded and send none."""
        if not await self._acquire(until):
            return [self._overloaded()] * len(operations)
        try:
            return await self._inner.apply(operations, until)
        finally:
            self._slots.release()

    async def scan(self, scan: Scan) -> Page:
        """Send the scan when a slot is free."""
        await self._acquire(math.inf)
        try:
            return await self._inner.scan(scan)
        finally:
            self._slots.release()

    async def splits(self, count_max: int) -> list[bytes]:
        """Send the request when a slot is free."""
        await self._acquire(math.inf)
        try:
            return await self._inner.splits(count_max)
        finally:
            self._slots.release()

    async def _acquire(self, until: float) -> bool:
        """Wait for a slot. Return whether it was free by `until`."""
        if self._slots.locked():
            return await self._wait(until)
        return await self._slots.acquire()

    async def _wait(self, until: float) -> bool:
        try:
            with wait_span(self._traces, "bulkhead wait"):
                async with asyncio.timeout_at(None if until == math.inf else until):
                    await self._slots.acquire()
        except TimeoutError:
            self._refused.inc()
            return False
        self._waited.inc()
        return True

    def _overloaded(self) -> Overloaded:
        busy = f"table {self.spec.name!r}: {self._concurrency_max} calls of its store (concurrency_max) were in flight"
        return Overloaded(f"{busy} until the deadline")
