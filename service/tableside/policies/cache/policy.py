"""The cache policy: answers gets from its entries, or with one load of the store that concurrent gets share.

Writes go to the store. Before and after each write, successful or not, the cache drops the entry of its key, and
later gets do not join loads of the key that began earlier. A get after an acknowledged write therefore never returns
an older value. With `writes` "through" the cache then stores the record that an acknowledged write left. It does not
store the record if another write may have changed it since the first began.

Replicas publish their writes to each other on a channel, if one is configured. Scans bypass the cache.
"""

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from typing import Literal

from ...core import Clock, DeadlineExceeded, Get, Key, Operation, Outcome, Record, Store, TableError, Written, now_ms
from ...core.store import Policy
from ...telemetry import Traces, current_link, wait_span
from .entries import Entries
from .loads import Load, Loads, young_enough
from .metrics import CacheMetrics, TableCacheMetrics
from .peers import Peers
from .writes import Writes, may_have_written, with_values, without_values, written_records


class Cache(Policy):
    """A store that caches records and absences that were read or, with `writes` "through", written.

    It has at most `records_max` entries and about `bytes_max` bytes. `ttl_s` (records) and `absent_ttl_s` (absences)
    count from the start of the read or write. With 0 the cache stores nothing, but loads are still shared. `clock`
    returns Unix milliseconds and decides when records expire. `monotonic` returns seconds and measures ages. `channel`
    connects the caches of the same table in other replicas.
    """

    def __init__(
        self,
        inner: Store,
        *,
        records_max: int,
        bytes_max: int,
        ttl_s: float,
        absent_ttl_s: float,
        writes: Literal["around", "through"] = "around",
        channel: Peers | None = None,
        clock: Clock = now_ms,
        monotonic: Callable[[], float] = time.monotonic,
        metrics: CacheMetrics | None = None,
        traces: Traces | None = None,
    ) -> None:
        super().__init__(inner)
        self._clock = clock
        self._monotonic = monotonic
        self._entries = Entries(records_max=records_max, bytes_max=bytes_max, ttl_s=ttl_s, absent_ttl_s=absent_ttl_s)
        self._loads = Loads()
        self._writes = Writes()
        self._through = writes == "through"
        self._metrics = None if metrics is None else TableCacheMetrics(metrics, inner.spec.name, inner.spec.partition)
        self._traces = traces
        self._suspended = False
        self._subscription = None
        if channel is not None:
            self._subscription = channel.subscribe(
                inner.spec.name_in_store, on_keys=self._on_written, on_lost=self._forget_all, on_sent=self._on_sent
            )

    def suspend(self) -> None:
        """Drop all entries, and bypass the cache until `resume`, because some writes do not pass through it."""
        self._suspended = True
        self._forget_all()

    def resume(self) -> None:
        """Cache entries and share loads again."""
        self._suspended = False

    async def apply(self, operations: Sequence[Operation], until: float = math.inf) -> Sequence[Outcome]:
        """Answer gets from the entries, and send the remaining operations in one call of the store."""
        if self._suspended:
            return await self._bypass(operations, until)
        outcomes: list[Outcome] = [None] * len(operations)
        positions: Sequence[int] = range(len(operations))
        while positions:
            now = self._monotonic()
            asked, oldest = self._entries.fill(operations, positions, outcomes, now, self._clock)
            if self._metrics is not None and len(asked) < len(positions):
                self._metrics.count_hits(len(positions) - len(asked), now - oldest)
            positions = await self._load_or_join(operations, asked, outcomes, until) if asked else ()
        return outcomes

    async def close(self) -> None:
        """Unsubscribe from the channel and drop all entries. Then close the inner store."""
        self.suspend()
        if self._subscription is not None:
            self._subscription.leave()
        await super().close()

    async def _load_or_join(
        self, operations: Sequence[Operation], positions: Sequence[int], outcomes: list[Outcome], until: float
    ) -> Sequence[int]:
        """Wait for loads that others began, and send the rest. Return the positions of gets that must try again."""
        joined = self._joined(operations, positions)
        own = [position for position in positions if position not in joined] if joined else positions
        asked = [operations[position] for position in own]
        if self._metrics is not None:
            self._metrics.count_misses(asked, len(joined))
        loads = set(joined.values())
        for load in loads:
            load.waiting += 1
        try:
            if own:
                for position, answer in zip(own, await self._call(asked, until), strict=True):
                    outcomes[position] = answer
            for load in loads:
                with wait_span(None if load.ended else self._traces, "cache wait", [load.link]):
                    await load.wait(until)
        finally:
            for load in loads:
                self._loads.leave(load)
        for position, load in joined.items():
            outcomes[position] = self._joined_outcome(operations[position], load, until)
        again = [position for position in joined if outcomes[position] is _TRY_AGAIN]
        return again if again and time.monotonic() < until else ()

    async def _bypass(self, operations: Sequence[Operation], until: float) -> Sequence[Outcome]:
        """Send the operations, and track only the writes: they may end after the cache is resumed."""
        writes = [operation.key for operation in operations if type(operation) is not Get]
        self._before(writes)
        # Other writes of these keys may bypass this cache, so the records that these writes leave are unknown.
        self._writes.mark_contested(writes)
        return await self._write(operations, writes, until) if writes else await self._inner.apply(operations, until)

    def _joined(self, operations: Sequence[Operation], positions: Sequence[int]) -> dict[int, Load]:
        if not self._loads:
            return {}
        now = self._monotonic()
        found = ((position, self._loads.joinable(operations[position], now)) for position in positions)
        return {position: load for position, load in found if load is not None}

    async def _call(self, operations: Sequence[Operation], until: float) -> Sequence[Outcome]:
        """Send operations in one call of the store, which other gets may join if it has a get."""
        writes = [operation.key for operation in operations if type(operation) is not Get]
        sent = with_values(operations) if writes and self._through else operations
        self._before(writes)
        if len(writes) == len(operations):
            outcomes = await self._write(sent, writes, until)
        else:
            outcomes = await self._load(sent, writes, until)
        return outcomes if sent is operations else without_values(operations, outcomes)

    async def _write(self, operations: Sequence[Operation], writes: Sequence[Key], until: float) -> Sequence[Outcome]:
        outcomes: Sequence[Outcome] | None = None
        began = self._monotonic()
        try:
            outcomes = await self._inner.apply(operations, until)
        finally:
            self._after(operations, writes, outcomes, began)
        await self._flush(until)
        return outcomes

    async def _load(self, operations: Sequence[Operation], writes: Sequence[Key], until: float) -> Sequence[Outcome]:
        call, link = self._inner.apply(operations, until), current_link(self._traces)
        load = Load(operations, call, self._monotonic(), until, link)
        self._loads.start(load, lambda: self._load_ended(load, writes))
        load.waiting += 1
        try:
            outcomes = await asyncio.shield(load.task)
        finally:
            self._loads.leave(load)
        if writes:
            await self._flush(until)
        return outcomes

    def _load_ended(self, load: Load, writes: Sequence[Key]) -> None:
        """Cache the records of a load, except those whose keys had a write that began or ended since the load began."""
        keys = self._loads.finish(load) - self._writes.keys()
        outcomes = None if load.failed else load.task.result()
        if outcomes is not None and keys:
            found = zip(load.operations, outcomes, strict=True)
            self._entries.put([(asked.key, outcome) for asked, outcome in found if asked.key in keys], load.read_at)
        self._after(load.operations, writes, outcomes, load.read_at)

    def _before(self, writes: Sequence[Key]) -> None:
        self._writes.begin(writes)
        self._forget(writes)

    def _after(
        self, operations: Sequence[Operation], writes: Sequence[Key], outcomes: Sequence[Outcome] | None, began: float
    ) -> None:
        """Drop the entries of written keys, cache the records they are known to have, and publish the keys.

        If the call failed, `outcomes` is None.
        """
        if writes:
            alone = self._writes.end(writes)
            self._forget(writes)
            ended = writes if outcomes is None else _maybe_written(operations, outcomes)
            if outcomes is not None and self._through and not self._suspended:
                found = zip(operations, outcomes, strict=True)
                self._entries.put(
                    written_records((asked.key, outcome) for asked, outcome in found if asked.key in alone), began
                )
            if self._subscription is not None and ended:
                self._subscription.publish(ended)
        self._update_gauges()

    async def _flush(self, until: float) -> None:
        if self._subscription is not None:
            await self._subscription.flushed(until)

    def _on_written(self, keys: Sequence[Key] | None) -> None:
        """Drop the keys that another replica wrote. Loads and writes of them in flight may have older values."""
        if self._metrics is not None:
            self._metrics.received.inc(1 if keys is None else len(keys))
        if keys is None:
            self._forget_all()
        else:
            self._writes.mark_contested(keys)
            self._forget(keys)
            self._update_gauges()

    def _on_sent(self, keys: int) -> None:
        if self._metrics is not None:
            self._metrics.sent.inc(keys)

    def _forget(self, keys: Sequence[Key]) -> None:
        self._loads.forget(keys)
        self._entries.drop(keys)

    def _forget_all(self) -> None:
        self._writes.mark_contested()
        self._loads.forget()
        self._entries.clear()
        self._update_gauges()

    def _update_gauges(self) -> None:
        if self._metrics is not None:
            self._metrics.update_size(len(self._entries), self._entries.size_bytes, self._entries.evictions)

    def _joined_outcome(self, get: Operation, load: Load, until: float) -> Outcome:
        """Return the outcome of a joined load for this get, or `_TRY_AGAIN` if it does not answer this get."""
        if not load.ended or load.task.cancelled():
            return _TRY_AGAIN
        outcome = load.outcome(get.key)
        if isinstance(outcome, TableError):
            return _TRY_AGAIN if load.ran_out_of_time(outcome, until) else outcome
        age_s = self._monotonic() - load.read_at
        if not young_enough(get, age_s):
            return _TRY_AGAIN
        if outcome is None or isinstance(outcome, Written):
            return outcome
        if 0 < outcome.expires_ms <= self._clock():
            return _TRY_AGAIN
        return Record(outcome.value, outcome.etag, outcome.expires_ms, age_s)


def _maybe_written(operations: Sequence[Operation], outcomes: Sequence[Outcome]) -> list[Key]:
    return [
        operation.key
        for operation, outcome in zip(operations, outcomes, strict=True)
        if type(operation) is not Get and may_have_written(outcome)
    ]


_TRY_AGAIN = DeadlineExceeded("the deadline was over while another get read the record")
"""Marks a get that must try again. If its deadline has passed, this is its outcome."""
