"""Limits of tables and of callers: calls pay for their operations with credits, or wait for them."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from ...core import NO_DEADLINE, Budget, Operation, Outcome, Store, Throttled
from ...core.batch import Direction, direction
from ...core.store import Policy
from ...telemetry import Counter, Histogram, Traces, wait_span
from ..metrics import PolicyMetrics
from .credits import Bucket, Rate

if TYPE_CHECKING:
    from .shared import SharedBucket, SharedCredits

Credits: TypeAlias = "Bucket | SharedBucket"
"""The credits of one limit, in this process or shared by all replicas."""

RETRY_AFTER_MIN_S = 0.001

CALLERS_MAX = 10_000

EVICTION_CANDIDATES_MAX = 8
"""Number of buckets that are examined to find one that can be evicted."""

ALL = "*"
"""The label in metrics of a limit for all tables, and for reads and writes together."""


class RateLimit(Policy):
    """A store with limits on reads and on writes, in operations per second. None means no limit.

    With `shared`, the rates apply to all replicas together. While the shared source cannot be reached, this process
    uses the fraction `share` of the rates.
    """

    def __init__(
        self,
        inner: Store,
        *,
        read: Rate | None,
        write: Rate | None,
        shared: "SharedCredits | None" = None,
        share: float = 1.0,
        metrics: PolicyMetrics | None = None,
        traces: Traces | None = None,
    ) -> None:
        super().__init__(inner)
        table, counted = inner.spec.name, metrics or PolicyMetrics()

        def gate(way: Direction, rate: Rate) -> Gate:
            if shared is None:
                credit: Credits = Bucket(rate)
            else:
                fallbacks = counted.limiter_fallbacks.labels(table, way)
                credit = shared.credits(table, way, rate, rate.scaled(share), fallbacks, inner.spec.partition)
            name = f"table {table!r}: its {way} limit (rate_per_s) of {rate.per_s:g} operations per second"
            throttled, waited_s = counted.throttled.labels(table, way), counted.throttle_seconds.labels(table, way)
            return Gate(lambda budget: credit, lambda budget: name, throttled, waited_s, traces)

        rates: list[tuple[Direction, Rate | None]] = [("read", read), ("write", write)]
        self._gates = {way: gate(way, rate) for way, rate in rates if rate is not None}

    async def apply(self, operations: Sequence[Operation], budget: Budget = NO_DEADLINE) -> Sequence[Outcome]:
        """Send the operations as their credits arrive. Operations without credits in time get Throttled."""
        gate = self._gates.get(direction(operations))
        if gate is None:
            return await self._inner.apply(operations, budget)
        return await gate.apply(self._inner, operations, budget)


class Gate(msgspec.Struct, frozen=True, eq=False):
    """Sends operations when they have credits.

    `credits_of` returns the credits that pay for a call. `name_for` describes its limit in error details. `throttled`
    counts rejected operations, `waited_s` times the calls that waited.
    """

    credits_of: Callable[[Budget], Credits]
    name_for: Callable[[Budget], str]
    throttled: Counter
    waited_s: Histogram
    traces: Traces | None

    async def apply(self, store: Store, operations: Sequence[Operation], budget: Budget) -> Sequence[Outcome]:
        """Send the operations to a store as their credits arrive. Operations without credits in time get Throttled.

        Each part is sent when its credits have arrived, without waiting for the outcomes of earlier parts.
        """
        credit, count = self.credits_of(budget), len(operations)
        taken = await self._take(count, budget.until, credit)
        if taken == count:
            return await store.apply(operations, budget)
        parts: list[asyncio.Task[Sequence[Outcome]]] = []
        sent = 0
        try:
            async with asyncio.TaskGroup() as group:
                while taken:
                    parts.append(group.create_task(store.apply(operations[sent : sent + taken], budget)))
                    sent += taken
                    taken = await self._take(count - sent, budget.until, credit)
                self.throttled.inc(count - sent)
                wait_s = max(RETRY_AFTER_MIN_S, credit.wait_s())
                detail = f"{self.name_for(budget)} leaves no credit before the deadline"
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        throttled: list[Outcome] = [Throttled(detail, retry_after_s=wait_s)] * (count - sent)
        return [outcome for part in parts for outcome in part.result()] + throttled

    async def _take(self, count: int, until: float, credit: Credits) -> int:
        if not count:
            return 0
        if taken := credit.take_now(count):
            return taken
        started = time.monotonic()
        if started + credit.wait_s() > until + RETRY_AFTER_MIN_S:
            return 0
        with wait_span(self.traces, "rate limit wait"):
            taken = await credit.take(count, until)
        if (waited_s := time.monotonic() - started) > 0:
            self.waited_s.observe(waited_s)
        return taken


class CallerRate:
    """The limit on the operations of each caller in all tables, by the caller's name.

    It limits no callers without a name. The credits belong to this process, which has the fraction `share` of the rate.
    """

    def __init__(self, share: float = 1.0, metrics: PolicyMetrics | None = None, traces: Traces | None = None) -> None:
        self._share = share
        self._metrics = metrics or PolicyMetrics()
        self._traces = traces
        self._per_s: float | None = None
        self._gate: Gate | None = None

    def change(self, per_s: float | None) -> None:
        """Change the rate, in operations per second. None means no limit."""
        if per_s == self._per_s:
            return
        self._per_s, self._gate = per_s, None
        if per_s is not None:
            rate, metrics = Rate(per_s).scaled(self._share), self._metrics
            buckets = Buckets(rate, CALLERS_MAX)
            name = f"its limit (limits.caller_rate_per_s) of {rate.per_s:g} operations per second"
            self._gate = Gate(
                lambda budget: buckets.of(budget.caller),
                lambda budget: f"caller {budget.caller!r}: {name}",
                metrics.caller_throttled.labels(ALL, ALL),
                metrics.caller_throttle_seconds.labels(ALL, ALL),
                self._traces,
            )

    def gate_for(self, caller: str) -> "Gate | None":
        """Return the gate that the caller's operations pass, None if there is no limit for it."""
        return self._gate if caller else None


class Buckets:
    """A bucket for each of at most `callers_max` callers, and a shared one for callers beyond that."""

    def __init__(self, rate: Rate, callers_max: int) -> None:
        self._rate = rate
        self._callers_max = callers_max
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()
        self._shared = Bucket(rate)

    def of(self, name: str) -> Bucket:
        """Return a caller's bucket."""
        if (bucket := self._buckets.get(name)) is not None:
            self._buckets.move_to_end(name)
            return bucket
        if len(self._buckets) >= self._callers_max and not self._evict_one():
            return self._shared
        bucket = self._buckets[name] = Bucket(self._rate)
        return bucket

    def _evict_one(self) -> bool:
        for _ in range(min(EVICTION_CANDIDATES_MAX, len(self._buckets))):
            name, bucket = self._buckets.popitem(last=False)
            if bucket.full:
                return True
            self._buckets[name] = bucket  # At the end: the next call examines others.
        return False
