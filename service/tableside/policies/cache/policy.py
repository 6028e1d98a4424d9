"""The policy: gets are answered from what is kept, or wait for one load of the store however many ask.

A put, update or delete goes to the store. Before it, and again after it, whatever became of it, what is kept of its key
is dropped, and what loads read of it is of no use to later gets. So no get is answered with what was read before a
write ended that was acknowledged before the get began. With `writes` "through", what an acknowledged write has left is
kept then, unless somebody else may have written the key since it began.

What other replicas write is known if they tell it, by a channel; scans go to the store, and leave the cache as it is.
"""

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from typing import Literal

from ...core import Clock, DeadlineExceeded, Get, Key, Operation, Outcome, Record, Store, TableError, Written, now_ms
from ...core.store import Policy
from ...telemetry import Traces, current_link, waiting
from .entries import Entries
from .loads import Load, Loads, young_enough
from .metrics import CacheMetrics, TableCacheMetrics
from .peers import Peers
from .writes import Writes, may_have_written, with_values, without_values, written_records


class Cache(Policy):
    """A store whose records, and absences, are kept for a while once they were read or, with "through", written.

    At most `records_max` of them and about `bytes_max` bytes. `ttl_s` and `absent_ttl_s` are seconds from when the
    reading or writing began; with 0 nothing is kept, and loads are shared nevertheless. `clock` is the one that records
    expire by, in Unix milliseconds, `monotonic` the one that ages are measured by, in seconds. `channel` leads to the
    caches of the same table in other replicas.
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
            place, sent = inner.spec.name_in_store, self._sent
            self._subscription = channel.subscribe(place, on_keys=self._heard, on_lost=self._forget_all, on_sent=sent)

    def suspend(self) -> None:
        """Keep and share nothing until `warm`: there are writes under way that do not come through here."""
        self._suspended = True
        self._forget_all()

    def resume(self) -> None:
        """Begin to keep and to share what is read, or written, from now on."""
        self._suspended = False

    async def apply(self, operations: Sequence[Operation], until: float = math.inf) -> list[Outcome]:
        """Answer gets from what is kept, and do what is left in one call of the store."""
        if self._suspended:
            return await self._past(operations, until)
        outcomes: list[Outcome] = [None] * len(operations)
        positions: Sequence[int] = range(len(operations))
        while positions:
            now = self._monotonic()
            asked, oldest = self._entries.fill(operations, positions, outcomes, now, self._clock)
            if self._metrics is not None and len(asked) < len(positions):
                self._metrics.answered(len(positions) - len(asked), now - oldest)
            positions = await self._ask(operations, asked, outcomes, until) if asked else ()
        return outcomes

    async def close(self) -> None:
        """Hear nothing from other replicas any more, and keep nothing; then finish what was accepted."""
        self.suspend()
        if self._subscription is not None:
            self._subscription.leave()
        await super().close()

    async def _ask(
        self, operations: Sequence[Operation], positions: Sequence[int], outcomes: list[Outcome], until: float
    ) -> Sequence[int]:
        """Wait for what others load and ask for the rest; return the positions of those that must ask again."""
        joined = self._joined(operations, positions)
        own = [position for position in positions if position not in joined] if joined else positions
        asked = [operations[position] for position in own]
        if self._metrics is not None:
            self._metrics.asked(asked, len(joined))
        loads = set(joined.values())
        for load in loads:
            load.waiting += 1
        try:
            if own:
                for position, answer in zip(own, await self._call(asked, until), strict=True):
                    outcomes[position] = answer
            for load in loads:
                with waiting(None if load.ended else self._traces, "cache wait", [load.link]):
                    await load.waited(until)
        finally:
            for load in loads:
                self._loads.leave(load)
        for position, load in joined.items():
            outcomes[position] = self._shared(operations[position], load, until)
        again = [position for position in joined if outcomes[position] is _AGAIN]
        return again if again and asyncio.get_running_loop().time() < until else ()

    async def _past(self, operations: Sequence[Operation], until: float) -> list[Outcome]:
        """Ask the store, and take note of writes only: they may end when something is kept again."""
        writes = [operation.key for operation in operations if type(operation) is not Get]
        self._before(writes)
        # What goes by another way meanwhile is not known here, so what these writes leave is not either.
        self._writes.disturb(writes)
        return await self._written(operations, writes, until) if writes else await self._inner.apply(operations, until)

    def _joined(self, operations: Sequence[Operation], positions: Sequence[int]) -> dict[int, Load]:
        if not self._loads:
            return {}
        now = self._monotonic()
        found = ((position, self._loads.to_join(operations[position], now)) for position in positions)
        return {position: load for position, load in found if load is not None}

    async def _call(self, operations: Sequence[Operation], until: float) -> list[Outcome]:
        """Do operations in one call of the store, which others may wait for if it reads anything."""
        writes = [operation.key for operation in operations if type(operation) is not Get]
        sent = with_values(operations) if writes and self._through else operations
        self._before(writes)
        if len(writes) == len(operations):
            outcomes = await self._written(sent, writes, until)
        else:
            outcomes = await self._loaded(sent, writes, until)
        return outcomes if sent is operations else without_values(operations, outcomes)

    async def _written(self, operations: Sequence[Operation], writes: Sequence[Key], until: float) -> list[Outcome]:
        began, outcomes = self._monotonic(), None
        try:
            outcomes = await self._inner.apply(operations, until)
        finally:
            self._after(operations, writes, outcomes, began)
        await self._others_told(until)
        return outcomes

    async def _loaded(self, operations: Sequence[Operation], writes: Sequence[Key], until: float) -> list[Outcome]:
        call, link = self._inner.apply(operations, until), current_link(self._traces)
        load = Load(operations, call, self._monotonic(), until, link)
        self._loads.start(load, lambda: self._load_ended(load, writes))
        load.waiting += 1
        try:
            outcomes = await asyncio.shield(load.task)
        finally:
            self._loads.leave(load)
        if writes:
            await self._others_told(until)
        return outcomes

    def _load_ended(self, load: Load, writes: Sequence[Key]) -> None:
        """Keep what a load read, unless a write of the key began or ended since the load began."""
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
        self, operations: Sequence[Operation], writes: Sequence[Key], outcomes: list[Outcome] | None, began: float
    ) -> None:
        """Drop what was written, keep what is known of it, and tell others; without outcomes nothing is known."""
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
        self._show()

    async def _others_told(self, until: float) -> None:
        if self._subscription is not None:
            await self._subscription.flushed(until)

    def _heard(self, keys: Sequence[Key] | None) -> None:
        """Drop what another replica wrote; what is read or written of it now is older, perhaps."""
        if self._metrics is not None:
            self._metrics.received.inc(1 if keys is None else len(keys))
        if keys is None:
            self._forget_all()
        else:
            self._writes.disturb(keys)
            self._forget(keys)
            self._show()

    def _sent(self, keys: int) -> None:
        if self._metrics is not None:
            self._metrics.sent.inc(keys)

    def _forget(self, keys: Sequence[Key]) -> None:
        self._loads.forget(keys)
        self._entries.drop(keys)

    def _forget_all(self) -> None:
        self._writes.disturb()
        self._loads.forget()
        self._entries.clear()
        self._show()

    def _show(self) -> None:
        if self._metrics is not None:
            self._metrics.held(len(self._entries), self._entries.size_bytes, self._entries.evictions)

    def _shared(self, get: Operation, load: Load, until: float) -> Outcome:
        """Return what another's load found, if that is an answer to this get too."""
        if not load.ended or load.task.cancelled():
            return _AGAIN
        outcome = load.outcome(get.key)
        if isinstance(outcome, TableError):
            return _AGAIN if load.lacked_time(outcome, until) else outcome
        age_s = self._monotonic() - load.read_at
        if not young_enough(get, age_s):
            return _AGAIN
        if outcome is None or isinstance(outcome, Written):
            return outcome
        if 0 < outcome.expires_ms <= self._clock():
            return _AGAIN
        return Record(outcome.value, outcome.etag, outcome.expires_ms, age_s)


def _maybe_written(operations: Sequence[Operation], outcomes: Sequence[Outcome]) -> list[Key]:
    return [
        operation.key
        for operation, outcome in zip(operations, outcomes, strict=True)
        if type(operation) is not Get and may_have_written(outcome)
    ]


_AGAIN = DeadlineExceeded("the deadline was over while another get read the record")
"""Instead of an answer: the get has to ask again, or if its time is over, this is its outcome."""
