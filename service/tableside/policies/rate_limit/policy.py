"""The store that gets so much a second: a bucket for each direction, and calls that pass in parts."""

import asyncio
import math
from collections.abc import Sequence

import msgspec

from ...directions import Direction, apart, reads
from ...errors import Throttled
from ...operations import Operation, Outcome
from ...store import Policy, Store
from .bucket import Bucket
from .metrics import Metrics


class Rate(msgspec.Struct, frozen=True):
    """So many operations a second (fractions too), and how many at once after a pause.

    Without a `burst` it is what comes in a second, at least one.
    """

    per_s: float
    burst: float | None = None

    def __post_init__(self) -> None:
        """Refuse what would let nothing through."""
        if not 0 < self.per_s < math.inf or (self.burst is not None and self.burst < 1):
            raise ValueError("a rate is above 0 per second, its burst at least 1")

    def bucket(self) -> Bucket:
        """Return a full bucket of such credits."""
        return Bucket(self.per_s, self.burst if self.burst is not None else max(1.0, self.per_s))


class RateLimit(Policy):
    """A store that gets so many reads and so many writes a second; None is no limit."""

    def __init__(self, inner: Store, *, read: Rate | None, write: Rate | None, metrics: Metrics | None = None) -> None:
        super().__init__(inner)
        table = inner.spec.name
        self._read = _Limit(inner, "read", read, table, metrics) if read else None
        self._write = _Limit(inner, "write", write, table, metrics) if write else None

    async def apply(self, operations: Sequence[Operation], until: float = math.inf) -> list[Outcome]:
        """Hand the operations on as their credits come; Throttled, and nothing applied, where none comes in time."""
        gets = reads(operations)
        if gets == len(operations):
            return await self._by(self._read, operations, until)
        if gets == 0:
            return await self._by(self._write, operations, until)
        if self._all_pass(gets, len(operations) - gets):
            return await self._inner.apply(operations, until)
        return await apart(
            operations,
            lambda some: self._by(self._read, some, until),
            lambda some: self._by(self._write, some, until),
        )

    async def _by(self, limit: "_Limit | None", operations: Sequence[Operation], until: float) -> list[Outcome]:
        if limit is None or limit.bucket.take_all(len(operations)):
            return await self._inner.apply(operations, until)
        return await limit.in_parts(operations, until)

    def _all_pass(self, gets: int, writes: int) -> bool:
        if self._read is not None and not self._read.bucket.take_all(gets):
            return False
        if self._write is None or self._write.bucket.take_all(writes):
            return True
        if self._read is not None:
            self._read.bucket.give_back(gets)
        return False


class _Limit:
    """One direction of a table: its bucket, and how a call passes that must wait."""

    def __init__(self, inner: Store, direction: Direction, rate: Rate, table: str, metrics: Metrics | None) -> None:
        self.bucket = rate.bucket()
        self._inner = inner
        self._name = f"table {table!r}: its {direction} limit (rate_per_s) of {rate.per_s:g} operations per second"
        self._throttled = metrics.throttled.labels(table, direction) if metrics else None
        self._waited_s = metrics.waited_s.labels(table, direction) if metrics else None

    async def in_parts(self, operations: Sequence[Operation], until: float) -> list[Outcome]:
        """Send each part when its credits have come, without waiting for the parts before it."""
        taken = await self._taken(len(operations), until)
        if taken == len(operations):
            return await self._inner.apply(operations, until)
        parts: list[asyncio.Task[list[Outcome]]] = []
        sent = 0
        try:
            async with asyncio.TaskGroup() as group:
                while taken:
                    part = operations[sent : sent + taken]
                    parts.append(group.create_task(self._inner.apply(part, until)))
                    sent += taken
                    taken = await self._taken(len(operations) - sent, until)
                refused = self._refused(len(operations) - sent)
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return [outcome for part in parts for outcome in part.result()] + refused

    async def _taken(self, wanted: int, until: float) -> int:
        started = asyncio.get_running_loop().time()
        taken = await self.bucket.take(wanted, until)
        waited_s = asyncio.get_running_loop().time() - started
        if self._waited_s is not None and waited_s > 0:
            self._waited_s.observe(waited_s)
        return taken

    def _refused(self, count: int) -> list[Outcome]:
        if self._throttled is not None:
            self._throttled.inc(count)
        detail = f"{self._name} leaves no credit before the deadline"
        return [Throttled(detail, retry_after_s=self.bucket.wait_s())] * count if count else []
