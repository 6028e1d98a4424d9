"""Limits of tables and of callers: calls pay for their operations with credits, or wait for them."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
from pydantic import BaseModel, Field

from ...core import NO_DEADLINE, Budget, Delete, Get, Operation, Outcome, Put, Record, Store, Throttled, Update
from ...core.batch import Direction, direction
from ...core.operations import size_bytes
from ...core.store import Policy
from ...telemetry import Counter, Histogram, Traces, wait_span
from ..metrics import PolicyMetrics
from .credits import Bucket, Credits, Rate

if TYPE_CHECKING:
    from .shared import SharedCredits

RETRY_AFTER_MIN_S = 0.001

CALLERS_MAX = 10_000

EVICTION_CANDIDATES_MAX = 8
"""Number of buckets that are examined to find one that can be evicted."""

ALL = "*"
"""The label in metrics of a limit for all tables, and for reads and writes together."""

KIB = 1024


class Cost(BaseModel, frozen=True, extra="forbid"):
    """The credits that an operation of each kind costs, and the credits for each KiB of values (`kib`).

    A partial KiB counts as a full one. `kib` applies to the values that are sent, and to the values that a get finds,
    which are paid afterwards.
    """

    get: float = Field(default=1.0, ge=0, le=1e6)
    put: float = Field(default=1.0, ge=0, le=1e6)
    update: float = Field(default=1.0, ge=0, le=1e6)
    delete: float = Field(default=1.0, ge=0, le=1e6)
    kib: float = Field(default=0.0, ge=0, le=1e6)

    @property
    def uniform(self) -> bool:
        """Return whether every operation costs one credit, so that their costs need not be computed."""
        return self == Cost()

    def of(self, operation: Operation) -> float:
        """Return the cost of an operation that is charged before it is sent."""
        match operation:
            case Get():
                return self.get
            case Put():
                return self.put + self._size_cost(len(operation.value))
            case Update():
                return self.update + (self._size_cost(size_bytes(operation)) if self.kib else 0.0)
            case Delete():
                return self.delete

    def found_cost(self, outcomes: Sequence[Outcome]) -> float:
        """Return the additional cost of gets for the records that they found."""
        return sum(self._size_cost(len(outcome.value)) for outcome in outcomes if isinstance(outcome, Record))

    def _size_cost(self, size_bytes: int) -> float:
        return self.kib * -(-size_bytes // KIB)


class Gated(Policy):
    """A store whose reads or writes pass a gate."""

    _gates: Mapping[Direction, "Gate"]

    async def apply(self, operations: Sequence[Operation], budget: Budget = NO_DEADLINE) -> Sequence[Outcome]:
        """Send the operations as their credits arrive. Operations without credits in time get Throttled."""
        gate = self._gates.get(direction(operations))
        return await (
            self._inner.apply(operations, budget) if gate is None else gate.apply(self._inner, operations, budget)
        )


class RateLimit(Gated):
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
        shared: "SharedCredits | None" = None,
        share: float = 1.0,
        metrics: PolicyMetrics | None = None,
        traces: Traces | None = None,
    ) -> None:
        super().__init__(inner)
        self._cost = cost or Cost()
        self._shared = shared
        self._share = share
        self._metrics = metrics or PolicyMetrics()
        self._traces = traces
        rates: list[tuple[Direction, Rate | None]] = [("read", read), ("write", write)]
        self._gates = {way: self._gate(way, rate) for way, rate in rates if rate is not None}

    def _gate(self, way: Direction, rate: Rate) -> "Gate":
        table = self.spec.name
        credit = self._credits(way, rate)
        name = f"table {table!r}: its {way} limit (rate_per_s) of {rate.per_s:g} credits per second"
        counters = self._metrics.throttled.labels(table, way), self._metrics.throttle_seconds.labels(table, way)
        uniform = self._cost.uniform
        return Gate(lambda budget: credit, lambda budget: name, *counters, self._traces, self._cost, uniform)

    def _credits(self, way: Direction, rate: Rate) -> Credits:
        if self._shared is None:
            return rate.bucket()
        own = rate.scaled(self._share)
        return self._shared.credits(self.spec.name, way, rate, own, self._metrics, self.spec.partition)


class Gate(msgspec.Struct, frozen=True, eq=False):
    """Sends operations when they are paid.

    `credits_of` returns the credits that pay for a call. `name_for` describes its limit in error details. `throttled`
    counts rejected operations, `waited_s` times the calls that waited.
    """

    credits_of: Callable[[Budget], Credits]
    name_for: Callable[[Budget], str]
    throttled: Counter
    waited_s: Histogram
    traces: Traces | None
    cost: Cost
    uniform: bool

    async def apply(self, store: Store, operations: Sequence[Operation], budget: Budget) -> Sequence[Outcome]:
        """Send the operations to a store when they are paid. Operations that cannot be paid in time get Throttled."""
        credit = self.credits_of(budget)
        if self.uniform:
            if credit.try_take(len(operations)):
                return await store.apply(operations, budget)
            return await self._in_parts(store, operations, [1.0] * len(operations), budget, credit)
        costs = [self.cost.of(operation) for operation in operations]
        total, charged_later = sum(costs), self.cost.kib > 0 and direction(operations) == "read"
        if (total == 0 and not charged_later) or credit.try_take(total):
            return await self._send(store, operations, budget, credit)
        return await self._in_parts(store, operations, costs, budget, credit)

    async def _in_parts(
        self, store: Store, operations: Sequence[Operation], costs: list[float], budget: Budget, credit: Credits
    ) -> Sequence[Outcome]:
        """Send each part when its credits have arrived, without waiting for the outcomes of earlier parts."""
        taken = await self._take(costs, budget.until, credit)
        if taken == len(operations):
            return await self._send(store, operations, budget, credit)
        parts: list[asyncio.Task[Sequence[Outcome]]] = []
        sent = 0
        try:
            async with asyncio.TaskGroup() as group:
                while taken:
                    part = operations[sent : sent + taken]
                    parts.append(group.create_task(self._send(store, part, budget, credit)))
                    sent += taken
                    taken = await self._take(costs[sent:], budget.until, credit)
                throttled = self._throttled(costs[sent:], credit, budget)
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return [outcome for part in parts for outcome in part.result()] + throttled

    async def _send(
        self, store: Store, operations: Sequence[Operation], budget: Budget, credit: Credits
    ) -> Sequence[Outcome]:
        outcomes = await store.apply(operations, budget)
        if self.cost.kib:
            credit.charge(self.cost.found_cost(outcomes))
        return outcomes

    async def _take(self, costs: list[float], until: float, credit: Credits) -> int:
        if not costs:
            return 0
        if taken := credit.take_some(costs):
            return taken
        started = time.monotonic()
        if started + credit.wait_s(costs[0]) > until + RETRY_AFTER_MIN_S:
            return 0
        with wait_span(self.traces, "rate limit wait"):
            taken = await credit.take(costs, until)
        if (waited_s := time.monotonic() - started) > 0:
            self.waited_s.observe(waited_s)
        return taken

    def _throttled(self, costs: list[float], credit: Credits, budget: Budget) -> list[Outcome]:
        if not costs:
            return []
        self.throttled.inc(len(costs))
        wait_s = max(RETRY_AFTER_MIN_S, credit.wait_s(costs[0]))
        detail = f"{self.name_for(budget)} leaves no credit before the deadline"
        return [Throttled(detail, retry_after_s=wait_s)] * len(costs)


class CallerLimit(Gated):
    """A store with limits on each caller's reads and writes, by the caller's name. None means no limit.

    It is the outermost policy, so operations that a cache answers count too. The credits belong to this process. At
    most `callers_max` callers have a bucket. For a new caller, a full bucket is evicted: it is like a new one. If none
    of the least recently used buckets is full, new callers share one bucket.
    """

    def __init__(
        self,
        inner: Store,
        *,
        read: Rate | None,
        write: Rate | None,
        callers_max: int = CALLERS_MAX,
        metrics: PolicyMetrics | None = None,
        traces: Traces | None = None,
    ) -> None:
        super().__init__(inner)
        rates: list[tuple[Direction, Rate | None]] = [("read", read), ("write", write)]
        self._gates = {
            way: _caller_gate(rate, self.spec.name, way, metrics, traces, callers_max)
            for way, rate in rates
            if rate is not None
        }


class CallerRate:
    """The limit on the operations of each caller in all tables, by the caller's name.

    It limits no callers without a name. The credits belong to this process, which has the fraction `share` of the rate.
    """

    def __init__(self, share: float = 1.0, metrics: PolicyMetrics | None = None, traces: Traces | None = None) -> None:
        self._share = share
        self._metrics = metrics
        self._traces = traces
        self._per_s: float | None = None
        self._gate: Gate | None = None

    def change(self, per_s: float | None) -> None:
        """Change the rate, in operations per second. None means no limit."""
        if per_s == self._per_s:
            return
        self._per_s = per_s
        self._gate = None
        if per_s is not None:
            rate = Rate(per_s).scaled(self._share)
            self._gate = _caller_gate(rate, ALL, ALL, self._metrics, self._traces)

    def gate_for(self, caller: str) -> "Gate | None":
        """Return the gate that the caller's operations pass, None if there is no limit for it."""
        return self._gate if caller else None


def _caller_gate(
    rate: Rate,
    table: str,
    way: str,
    metrics: PolicyMetrics | None,
    traces: Traces | None,
    callers_max: int = CALLERS_MAX,
) -> Gate:
    """Return a gate at which each caller has its own credits."""
    buckets, metrics = Buckets(rate, callers_max), metrics or PolicyMetrics()
    limit = (
        "limit (limits.caller_rate_per_s)" if table == ALL else f"{way} limit of table {table!r} (caller_rate_per_s)"
    )
    name = f"its {limit} of {rate.per_s:g} operations per second"
    counters = metrics.caller_throttled.labels(table, way), metrics.caller_throttle_seconds.labels(table, way)
    return Gate(
        lambda budget: buckets.of(budget.caller),
        lambda budget: f"caller {budget.caller!r}: {name}",
        *counters,
        traces,
        Cost(),
        True,
    )


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
