"""Limits the concurrent calls of a table's store, so that they do not pile up when the store is slow.

Calls wait in order of arrival, until their deadline. Scans and splits count as calls. The table's deadline cancels
them. A batch is one call, even if the timeout policy divides it into reads and writes because their timeouts differ.
"""

import asyncio
import math
from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter

from ..core import Operation, Outcome, Page, Scan, Store
from ..core.errors import Overloaded
from ..core.store import Policy
from ..telemetry import Traces, wait_span


class BulkheadMetrics:
    """The metrics that the tables of one catalog share."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.calls = Counter(
            "tableside_bulkhead_calls",
            "Calls that found the limit reached, by whether they were sent later (waited) or not (refused).",
            ("table", "outcome"),
            registry=registry,
        )


class Bulkhead(Policy):
    """A store with at most `concurrency_max` concurrent calls."""

    def __init__(
        self,
        inner: Store,
        concurrency_max: int,
        *,
        metrics: BulkheadMetrics | None = None,
        traces: Traces | None = None,
    ) -> None:
        super().__init__(inner)
        if concurrency_max < 1:
            raise ValueError("concurrency_max must be at least 1")
        self._slots = asyncio.Semaphore(concurrency_max)
        self._concurrency_max = concurrency_max
        self._traces = traces
        table = inner.spec.name
        self._counters = {name: metrics.calls.labels(table, name) for name in ("waited", "refused")} if metrics else {}

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
            self._count("refused")
            return False
        self._count("waited")
        return True

    def _count(self, outcome: str) -> None:
        if outcome in self._counters:
            self._counters[outcome].inc()

    def _overloaded(self) -> Overloaded:
        busy = f"table {self.spec.name!r}: {self._concurrency_max} calls of its store (concurrency_max) were in flight"
        return Overloaded(f"{busy} until the deadline")
