"""The rate limit policy: credits for the reads and the writes of a table."""

import math
from collections.abc import Sequence
from typing import Protocol

import msgspec

from ...core import Get, Operation, Outcome, Store
from ...core.directions import Direction, apply_by_direction, count_reads
from ...core.store import Policy
from ...telemetry import Traces
from .bucket import Bucket
from .credits import Cost, Credits
from .gate import Gate
from .metrics import LimitCounters, RateLimitMetrics


class Rate(msgspec.Struct, frozen=True):
    """Credits per second, which may be a fraction, and the credits that can be used after a pause (`burst`).

    The default burst is the credits of one second, at least one.
    """

    per_s: float
    burst: float | None = None

    def __post_init__(self) -> None:
        """Reject rates that would let no operation pass."""
        if not 0 < self.per_s < math.inf or (self.burst is not None and not 1 <= self.burst < math.inf):
            raise ValueError("a rate must be above 0 per second, its burst at least 1, and both finite")

    @property
    def burst_credits(self) -> float:
        """Return the burst, or its default."""
        return self.burst if self.burst is not None else max(1.0, self.per_s)

    def bucket(self) -> Bucket:
        """Return a full bucket with this rate."""
        return Bucket(self.per_s, self.burst_credits)

    def scaled(self, share: float) -> "Rate":
        """Return this fraction of the rate."""
        return Rate(self.per_s * share, max(1.0, self.burst_credits * share))


class CreditSource(Protocol):
    """A source of credits that several processes share."""

    def credits(
        self,
        table: str,
        direction: Direction,
        rate: Rate,
        own: Rate,
        metrics: RateLimitMetrics | None,
        partition: int | None = None,
    ) -> Credits:
        """Return the credits of one direction of a table or of one of its partitions.

        While the source cannot be reached, credits come from this process's `own` rate.
        """
        ...


class RateLimit(Policy):
    """A store with limits on reads and on writes, in credits per second. None means no limit.

    With `shared`, the rates apply to all replicas together. While the shared source cannot be reached, this process
    uses the fraction `share` of the rates.
    """

    def __init__(
        self,
        inner: Store,
        *,
        read: Rate | None,
        write: Rate | None,
        cost: Cost | None = None,
        shared: CreditSource | None = None,
        share: float = 1.0,
        metrics: RateLimitMetrics | None = None,
        traces: Traces | None = None,
    ) -> None:
        super().__init__(inner)
        self._cost = cost or Cost()
        self._uniform = self._cost.uniform
        table, places = inner.spec.name, (shared, share, metrics, inner.spec.partition)
        self._read = _credits(table, "read", read, *places)
        self._write = _credits(table, "write", write, *places)
        self._charge_found = self._cost.kib > 0 and self._read is not None
        self._gates: dict[Direction, Gate] = {
            direction: Gate(
                inner, self._cost, _name(table, direction, rate), LimitCounters(metrics, table, direction), traces
            )
            for direction, rate in _configured(read, write)
        }

    async def apply(self, operations: Sequence[Operation], until: float = math.inf) -> Sequence[Outcome]:
        """Send the operations as their credits arrive. Operations without credits in time get Throttled."""
        gets = count_reads(operations)
        if gets == len(operations):
            if self._uniform and self._read is not None and self._read.try_take(gets):
                return await self._inner.apply(operations, until)
            return await self._reads(operations, until)
        if gets == 0:
            if self._uniform and self._write is not None and self._write.try_take(len(operations)):
                return await self._inner.apply(operations, until)
            return await self._writes(operations, until)
        if self._pay_all(operations, gets):
            outcomes = await self._inner.apply(operations, until)
            if self._read is not None and self._charge_found:
                self._read.charge(self._cost.found_cost(outcomes))
            return outcomes
        return await apply_by_direction(
            operations, lambda some: self._reads(some, until), lambda some: self._writes(some, until)
        )

    async def _reads(self, operations: Sequence[Operation], until: float) -> Sequence[Outcome]:
        if self._read is None:
            return await self._inner.apply(operations, until)
        return await self._gates["read"].apply(operations, until, self._read, charge_found=self._charge_found)

    async def _writes(self, operations: Sequence[Operation], until: float) -> Sequence[Outcome]:
        if self._write is None:
            return await self._inner.apply(operations, until)
        return await self._gates["write"].apply(operations, until, self._write, charge_found=False)

    def _pay_all(self, operations: Sequence[Operation], gets: int) -> bool:
        """Pay for all reads and writes if there are credits for both. Return whether they are paid."""
        reading, writing = self._costs(operations, gets)
        if self._read is not None and not self._read.try_take(reading):
            return False
        if self._write is None or writing == 0 or self._write.try_take(writing):
            return True
        if self._read is not None:
            self._read.refund(reading)
        return False

    def _costs(self, operations: Sequence[Operation], gets: int) -> tuple[float, float]:
        if self._uniform:
            return gets, len(operations) - gets
        writes = (operation for operation in operations if not isinstance(operation, Get))
        return gets * self._cost.get, sum(map(self._cost.of, writes))


def _credits(
    table: str,
    direction: Direction,
    rate: Rate | None,
    shared: CreditSource | None,
    share: float,
    metrics: RateLimitMetrics | None,
    partition: int | None,
) -> Credits | None:
    if rate is None:
        return None
    if shared is None:
        return rate.bucket()
    return shared.credits(table, direction, rate, rate.scaled(share), metrics, partition)


def _configured(read: Rate | None, write: Rate | None) -> list[tuple[Direction, Rate]]:
    rates: list[tuple[Direction, Rate | None]] = [("read", read), ("write", write)]
    return [(direction, rate) for direction, rate in rates if rate is not None]


def _name(table: str, direction: Direction, rate: Rate) -> str:
    return f"table {table!r}: its {direction} limit (rate_per_s) of {rate.per_s:g} credits per second"
