"""Bounds how many calls of a table's store are under way at once, so that a slow store does not pile them up.

Calls wait in the order in which they came, until their deadline. Scans and splits are calls too; their deadline is the
table's, which cancels them. Knows nothing of what a call holds: a batch is one call, also where the timeout within
divides it into its reads and its writes, for they have different times.
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
            "Calls of a store that found it busy, by whether they had their turn (waited) or not (refused).",
            ("table", "outcome"),
            registry=registry,
        )


class Bulkhead(Policy):
    """A store that is asked at most `concurrency_max` things at once."""

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
            raise ValueError("concurrency_max is at least 1")
        self._places = asyncio.Semaphore(concurrency_max)
        self._concurrency_max = concurrency_max
        self._traces = traces
        table = inner.spec.name
        self._counters = {name: metrics.calls.labels(table, name) for name in ("waited", "refused")} if metrics else {}

    async def apply(self, operations: Sequence[Operation], until: float = math.inf) -> list[Outcome]:
        """Hand the operations on when it is their turn; Overloaded, and nothing applied, if it is not by `until`."""
        if not await self._entered(until):
            return [self._overloaded()] * len(operations)
        try:
            return await self._inner.apply(operations, until)
        finally:
            self._places.release()

    async def scan(self, scan: Scan) -> Page:
        """Hand the scan on when it is its turn."""
        await self._entered(math.inf)
        try:
            return await self._inner.scan(scan)
        finally:
            self._places.release()

    async def splits(self, count_max: int) -> list[bytes]:
        """Hand the question on when it is its turn."""
        await self._entered(math.inf)
        try:
            return await self._inner.splits(count_max)
        finally:
            self._places.release()

    async def _entered(self, until: float) -> bool:
        """Take a place when it is this call's turn; return whether that was before its time was over."""
        if self._places.locked():
            return await self._turn(until)
        return await self._places.acquire()

    async def _turn(self, until: float) -> bool:
        try:
            with wait_span(self._traces, "bulkhead wait"):
                async with asyncio.timeout_at(None if until == math.inf else until):
                    await self._places.acquire()
        except TimeoutError:
            self._count("refused")
            return False
        self._count("waited")
        return True

    def _count(self, outcome: str) -> None:
        if outcome in self._counters:
            self._counters[outcome].inc()

    def _overloaded(self) -> Overloaded:
        busy = f"table {self.spec.name!r}: {self._concurrency_max} calls of its store (concurrency_max) were under way"
        return Overloaded(f"{busy} until the deadline")
