"""The cache policy: answers gets from its entries, or with one load of the store that concurrent gets share.

Writes go to the store. Before and after each write, successful or not, the cache drops the entry of its key, and
later gets do not join loads of the key that began earlier. A get after an acknowledged write therefore never returns
an older value. Scans bypass the cache.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import cast

from ...core import (
    NO_DEADLINE,
    Budget,
    Clock,
    DeadlineExceeded,
    Get,
    Key,
    Operation,
    Outcome,
    Record,
    Store,
    TableError,
    now_ms,
)
from ...core.batch import at_positions, direction
from ...core.store import Policy
from ...telemetry import Traces, current_link, wait_span
from ..metrics import CacheMetrics, PolicyMetrics
from .entries import Entries
from .in_flight import Load, Loads, young_enough


class Cache(Policy):
    """A store that caches records and absences that were read.

    It has at most `records_max` entries and about `bytes_max` bytes. `ttl_s` (records) and `absent_ttl_s` (absences)
    count from the start of the read. With 0 the cache stores nothing, but loads are still shared. `clock` returns Unix
    milliseconds and decides when records expire. `monotonic` returns seconds and measures ages.
    """

    def __init__(
        self,
        inner: Store,
        *,
        records_max: int,
        bytes_max: int,
        ttl_s: float,
        absent_ttl_s: float,
        clock: Clock = now_ms,
        monotonic: Callable[[], float] = time.monotonic,
        metrics: PolicyMetrics | None = None,
        traces: Traces | None = None,
    ) -> None:
        super().__init__(inner)
        self._clock = clock
        self._monotonic = monotonic
        self._entries = Entries(records_max=records_max, bytes_max=bytes_max, ttl_s=ttl_s, absent_ttl_s=absent_ttl_s)
        self._loads = Loads()
        self._writing = Counter[Key]()
        self._metrics = CacheMetrics(metrics or PolicyMetrics(), inner.spec.name, inner.spec.partition)
        self._traces = traces
        self._suspended = False

    def suspend(self) -> None:
        """Drop all entries, and bypass the cache until `resume`, because some writes do not pass through it."""
        self._suspended = True
        self._forget_all()

    def resume(self) -> None:
        """Cache entries and share loads again."""
        self._suspended = False

    async def apply(self, operations: Sequence[Operation], budget: Budget = NO_DEADLINE) -> Sequence[Outcome]:
        """Answer gets from the entries, and read the others in one call of the store. Pass on writes."""
        if direction(operations) == "write":
            return await self._write(operations, budget)
        if self._suspended:
            return await self._inner.apply(operations, budget)
        gets = cast("list[Get]", [*operations])
        outcomes: list[Outcome] = [None] * len(gets)
        positions: Sequence[int] = range(len(gets))
        while positions:
            now = self._monotonic()
            asked, oldest = self._entries.fill(gets, positions, outcomes, now, self._clock)
            if len(asked) < len(positions):
                self._metrics.count_hits(len(positions) - len(asked), now - oldest)
            positions = await self._load_or_join(operations, gets, asked, outcomes, budget) if asked else ()
        return outcomes

    async def close(self) -> None:
        """Drop all entries. Then close the inner store."""
        self.suspend()
        await super().close()

    async def _load_or_join(
        self,
        operations: Sequence[Operation],
        gets: Sequence[Get],
        positions: Sequence[int],
        outcomes: list[Outcome],
        budget: Budget,
    ) -> Sequence[int]:
        """Wait for loads that others began, and read the rest. Return the positions of gets that must try again."""
        joined = self._joined(gets, positions)
        own = [position for position in positions if position not in joined] if joined else positions
        bypassed = sum(gets[position].max_age_s == 0 for position in own)
        self._metrics.count_misses(len(own), bypassed, len(joined))
        loads = set(joined.values())
        for load in loads:
            load.waiting += 1
        try:
            if own:
                asked = operations if len(own) == len(gets) else at_positions(operations, own)
                answers = await self._load(asked, [gets[position] for position in own], budget)
                for position, answer in zip(own, answers, strict=True):
                    outcomes[position] = answer
            for load in loads:
                with wait_span(None if load.ended else self._traces, "cache wait", [load.link]):
                    await load.wait(budget.until)
        finally:
            for load in loads:
                self._loads.leave(load)
        for position, load in joined.items():
            outcomes[position] = self._joined_outcome(gets[position], load, budget)
        again = [position for position in joined if outcomes[position] is _TRY_AGAIN]
        return again if again and not budget.is_over() else ()

    def _joined(self, gets: Sequence[Get], positions: Sequence[int]) -> dict[int, Load]:
        if not self._loads:
            return {}
        now = self._monotonic()
        found = ((position, self._loads.joinable(gets[position], now)) for position in positions)
        return {position: load for position, load in found if load is not None}

    async def _load(self, operations: Sequence[Operation], gets: Sequence[Get], budget: Budget) -> Sequence[Outcome]:
        """Read records in one call of the store, which other gets may join. `operations` are the gets."""
        call, link = self._inner.apply(operations, budget), current_link(self._traces)
        load = Load(gets, call, self._monotonic(), budget.until, link)
        self._loads.start(load, lambda: self._load_ended(load))
        load.waiting += 1
        try:
            return await asyncio.shield(load.task)
        finally:
            self._loads.leave(load)

    def _load_ended(self, load: Load) -> None:
        """Cache the records of a load, except those whose keys had a write that began or ended since the load began."""
        keys = self._loads.finish(load) - self._writing.keys()
        if keys and not load.failed:
            found = zip(load.keys, load.task.result(), strict=True)
            self._entries.put([(key, outcome) for key, outcome in found if key in keys], load.read_at)
        self._update_gauges()

    async def _write(self, operations: Sequence[Operation], budget: Budget) -> Sequence[Outcome]:
        keys = [operation.key for operation in operations]
        self._writing.update(keys)
        self._forget(keys)
        try:
            return await self._inner.apply(operations, budget)
        finally:
            self._writing.subtract(keys)
            for key in keys:
                if not self._writing[key]:
                    del self._writing[key]
            self._forget(keys)
            self._update_gauges()

    def _forget(self, keys: Sequence[Key]) -> None:
        self._loads.forget(keys)
        self._entries.drop(keys)

    def _forget_all(self) -> None:
        self._loads.forget()
        self._entries.clear()
        self._update_gauges()

    def _update_gauges(self) -> None:
        self._metrics.update_size(len(self._entries), self._entries.size_bytes, self._entries.evictions)

    def _joined_outcome(self, get: Get, load: Load, budget: Budget) -> Outcome:
        """Return the outcome of a joined load for this get, or `_TRY_AGAIN` if it does not answer this get."""
        if not load.ended or load.task.cancelled():
            return _TRY_AGAIN
        outcome = load.outcome(get.key)
        if isinstance(outcome, TableError):
            return _TRY_AGAIN if load.ran_out_of_time(outcome, budget.until) else outcome
        age_s = self._monotonic() - load.read_at
        if not young_enough(get, age_s):
            return _TRY_AGAIN
        if not isinstance(outcome, Record):
            return outcome
        if 0 < outcome.expires_ms <= self._clock():
            return _TRY_AGAIN
        return Record(outcome.value, outcome.etag, outcome.expires_ms, age_s)


_TRY_AGAIN = DeadlineExceeded("the deadline was over while another get read the record")
"""Marks a get that must try again. If its deadline has passed, this is its outcome."""
