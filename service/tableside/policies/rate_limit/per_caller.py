"""Limits the operations per second of each caller on a table, by the caller's name, separately for reads and writes.

It is the outermost policy, so operations that a cache answers count too. Credits work as in the table's own limit and
belong to this process. At most `callers_max` callers have a bucket. For a new caller, a full bucket is evicted. A full
bucket is like a new one. If none of the least recently used buckets is full, new callers share one bucket.
"""

import math
from collections import OrderedDict
from collections.abc import Sequence

from ...core import Operation, Outcome, Store
from ...core.caller_context import CALLER
from ...core.directions import Direction, apply_by_direction, count_reads
from ...core.store import Policy
from ...telemetry import Traces
from .bucket import Bucket
from .credits import Cost
from .gate import Gate
from .metrics import CallerLimitMetrics, LimitCounters
from .policy import Rate

CALLERS_MAX = 10_000

EVICTION_CANDIDATES_MAX = 8
"""Number of buckets that are examined to find one that can be evicted."""


class CallerLimit(Policy):
    """A store with limits on each caller's reads and writes. None means no limit."""

    def __init__(
        self,
        inner: Store,
        *,
        read: Rate | None,
        write: Rate | None,
        callers_max: int = CALLERS_MAX,
        metrics: CallerLimitMetrics | None = None,
        traces: Traces | None = None,
    ) -> None:
        super().__init__(inner)
        if callers_max < 1:
            raise ValueError("callers_max is at least 1")
        self._read = _DirectionLimit(inner, "read", read, callers_max, metrics, traces) if read else None
        self._write = _DirectionLimit(inner, "write", write, callers_max, metrics, traces) if write else None

    async def apply(self, operations: Sequence[Operation], until: float = math.inf) -> Sequence[Outcome]:
        """Send the operations as the caller's credits arrive. Operations without credits in time get Throttled."""
        gets = count_reads(operations)
        if gets == len(operations):
            reads = operations
            return await self._apply_limited(self._read, reads, until)
        if gets == 0:
            return await self._apply_limited(self._write, operations, until)
        if self._pay_all(gets, len(operations) - gets):
            return await self._inner.apply(operations, until)
        return await apply_by_direction(
            operations,
            lambda some: self._apply_limited(self._read, some, until),
            lambda some: self._apply_limited(self._write, some, until),
        )

    async def _apply_limited(
        self, limit: "_DirectionLimit | None", operations: Sequence[Operation], until: float
    ) -> Sequence[Outcome]:
        if limit is None:
            return await self._inner.apply(operations, until)
        bucket = limit.buckets.of(CALLER.get())
        if bucket.try_take(len(operations)):
            return await self._inner.apply(operations, until)
        return await limit.gate.apply(operations, until, bucket, charge_found=False)

    def _pay_all(self, gets: int, writes: int) -> bool:
        reading = self._read.buckets.of(CALLER.get()) if self._read else None
        writing = self._write.buckets.of(CALLER.get()) if self._write else None
        if reading is not None and not reading.try_take(gets):
            return False
        if writing is None or writing.try_take(writes):
            return True
        if reading is not None:
            reading.refund(gets)
        return False


class _DirectionLimit:
    """One direction of a table: the buckets of its callers, and the gate at which they pay."""

    def __init__(
        self,
        inner: Store,
        direction: Direction,
        rate: Rate,
        callers_max: int,
        metrics: CallerLimitMetrics | None,
        traces: Traces | None,
    ) -> None:
        table = inner.spec.name
        limit = f"table {table!r}: the {direction} limit of each caller (caller_rate_per_s)"
        name = f"{limit} of {rate.per_s:g} operations per second"
        self.gate = Gate(inner, Cost(), name, LimitCounters(metrics, table, direction), traces)
        self.buckets = Buckets(rate, callers_max)


class Buckets:
    """A bucket for each of at most `callers_max` callers, and a shared one for callers beyond that."""

    def __init__(self, rate: Rate, callers_max: int) -> None:
        self._rate = rate
        self._callers_max = callers_max
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()
        self._shared = rate.bucket()

    def __len__(self) -> int:
        """Return the number of callers with a bucket."""
        return len(self._buckets)

    def of(self, name: str) -> Bucket:
        """Return a caller's bucket."""
        if (bucket := self._buckets.get(name)) is not None:
            self._buckets.move_to_end(name)
            return bucket
        if len(self._buckets) >= self._callers_max and not self._evict_one():
            return self._shared
        bucket = self._buckets[name] = self._rate.bucket()
        return bucket

    def _evict_one(self) -> bool:
        for _ in range(min(EVICTION_CANDIDATES_MAX, len(self._buckets))):
            name, bucket = self._buckets.popitem(last=False)
            if bucket.full:
                return True
            self._buckets[name] = bucket  # At the end: the next call examines others.
        return False
