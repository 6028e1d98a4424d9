"""Bounds what each caller may ask of a table, by name: operations a second, as they are asked, reads and writes apart.

It stands outside of everything, so that what a cache answers counts too. Credits come and are waited for as in the
table's own limit, and are this process's. No more callers are remembered than `callers_max`: the bucket of one who has
not asked for a while is full, which is as if it had never been, and goes first. While there is none such among those
that are looked at, newcomers share one bucket.
"""

import math
from collections import OrderedDict
from collections.abc import Sequence

from ...core import Operation, Outcome, Store
from ...core.caller_context import CALLER
from ...core.directions import AllReads, Direction, apply_by_direction, count_reads
from ...core.store import Policy
from ...telemetry import Traces
from .bucket import Bucket
from .credits import Cost
from .gate import Gate
from .metrics import CallerLimitMetrics, LimitCounters
from .policy import Rate

CALLERS_MAX = 10_000

EVICTION_CANDIDATES_MAX = 8
"""How many remembered callers are looked at to find one that can be forgotten."""


class CallerLimit(Policy):
    """A store of which each caller may ask so many reads and writes a second; None is no limit."""

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

    async def apply(self, operations: Sequence[Operation], until: float = math.inf) -> list[Outcome]:
        """Hand the operations on as the caller's credits come; Throttled where none comes in time."""
        gets = count_reads(operations)
        if gets == len(operations):
            return await self._by(self._read, operations if gets == 1 else AllReads(operations), until)
        if gets == 0:
            return await self._by(self._write, operations, until)
        if self._all_paid(gets, len(operations) - gets):
            return await self._inner.apply(operations, until)
        return await apply_by_direction(
            operations,
            lambda some: self._by(self._read, some, until),
            lambda some: self._by(self._write, some, until),
        )

    async def _by(self, line: "_DirectionLimit | None", operations: Sequence[Operation], until: float) -> list[Outcome]:
        if line is None:
            return await self._inner.apply(operations, until)
        bucket = line.buckets.of(CALLER.get())
        if bucket.try_take(len(operations)):
            return await self._inner.apply(operations, until)
        return await line.gate.apply(operations, until, bucket, charge_found=False)

    def _all_paid(self, gets: int, writes: int) -> bool:
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
    """One direction of a table: every caller's bucket, and where he pays."""

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
        told = f"table {table!r}: the {direction} limit of each caller (caller_rate_per_s)"
        name = f"{told} of {rate.per_s:g} operations per second"
        self.gate = Gate(inner, Cost(), name, LimitCounters(metrics, table, direction), traces)
        self.buckets = Buckets(rate, callers_max)


class Buckets:
    """A bucket for each of so many callers, and one for those who come when there is no room."""

    def __init__(self, rate: Rate, callers_max: int) -> None:
        self._rate = rate
        self._callers_max = callers_max
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()
        self._shared = rate.bucket()

    def __len__(self) -> int:
        """Count the callers that are remembered."""
        return len(self._buckets)

    def of(self, name: str) -> Bucket:
        """Return a caller's bucket."""
        if (bucket := self._buckets.get(name)) is not None:
            self._buckets.move_to_end(name)
            return bucket
        if len(self._buckets) >= self._callers_max and not self._forgets_one():
            return self._shared
        bucket = self._buckets[name] = self._rate.bucket()
        return bucket

    def _forgets_one(self) -> bool:
        for _ in range(min(EVICTION_CANDIDATES_MAX, len(self._buckets))):
            name, bucket = self._buckets.popitem(last=False)
            if bucket.full:
                return True
            self._buckets[name] = bucket  # Last again: others are looked at next time.
        return False
