"""The policy: gets are answered from what is kept, or wait for one load of the store however many ask.

A put, update or delete goes to the store (write-around): what is kept of its key is dropped, and what loads read of it
is of no use to later gets, before the write and again after it, whatever became of it. So no get is answered with what
was read before a write ended that was acknowledged before the get began.

Scans go to the store, and leave the cache as it is. It does not know of writes by other replicas and tools.
"""

import asyncio
import math
import time
from collections.abc import Callable, Sequence

from ...errors import DeadlineExceeded, TableError
from ...operations import Get, Key, Operation, Outcome, Record, Written
from ...store import Clock, Policy, Store, now_ms
from .kept import Kept
from .loads import Load, Loads, young_enough
from .metrics import Metrics, TableMetrics


class Cache(Policy):
    """A store whose records, and absences, are kept for a while once they were read.

    At most `records_max` of them and about `bytes_max` bytes. `ttl_s` and `absent_ttl_s` are seconds from when the
    reading began; with 0 nothing is kept, and loads are shared nevertheless. `clock` is the one that records expire
    by, in Unix milliseconds, `monotonic` the one that ages are measured by, in seconds.
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
        metrics: Metrics | None = None,
    ) -> None:
        super().__init__(inner)
        self._clock = clock
        self._monotonic = monotonic
        self._kept = Kept(records_max=records_max, bytes_max=bytes_max, ttl_s=ttl_s, absent_ttl_s=absent_ttl_s)
        self._loads = Loads()
        self._written: dict[Key, int] = {}  # how many writes of a key are under way
        self._metrics = None if metrics is None else TableMetrics(metrics, inner.spec.name)
        self._cold = False

    def chill(self) -> None:
        """Keep and share nothing until `warm`: there are writes under way that do not come through here."""
        self._cold = True

    def warm(self) -> None:
        """Begin to keep and to share what is read from now on."""
        self._cold = False

    async def apply(self, operations: Sequence[Operation], until: float = math.inf) -> list[Outcome]:
        """Answer gets from what is kept, and do what is left in one call of the store."""
        if self._cold:
            return await self._past(operations, until)
        outcomes: list[Outcome] = [None] * len(operations)
        positions: Sequence[int] = range(len(operations))
        while positions:
            asked = self._kept.answer(operations, positions, outcomes, self._monotonic(), self._clock)
            if self._metrics is not None and len(asked) < len(positions):
                self._metrics.hits.inc(len(positions) - len(asked))
            positions = await self._ask(operations, asked, outcomes, until) if asked else ()
        return outcomes

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
        try:
            return await self._inner.apply(operations, until)
        finally:
            self._after(writes)

    def _joined(self, operations: Sequence[Operation], positions: Sequence[int]) -> dict[int, Load]:
        if not self._loads:
            return {}
        now = self._monotonic()
        found = ((position, self._loads.to_join(operations[position], now)) for position in positions)
        return {position: load for position, load in found if load is not None}

    async def _call(self, operations: Sequence[Operation], until: float) -> list[Outcome]:
        """Do operations in one call of the store, which others may wait for if it reads anything."""
        writes = [operation.key for operation in operations if type(operation) is not Get]
        self._before(writes)
        if len(writes) == len(operations):
            try:
                return await self._inner.apply(operations, until)
            finally:
                self._after(writes)
        load = Load(operations, self._inner.apply(operations, until), self._monotonic(), until)
        self._loads.start(load, lambda: self._load_ended(load, writes))
        load.waiting += 1
        try:
            return await asyncio.shield(load.task)
        finally:
            self._loads.leave(load)

    def _load_ended(self, load: Load, writes: Sequence[Key]) -> None:
        """Keep what a load read, unless a write of the key began or ended since the load began."""
        keys = self._loads.finish(load) - self._written.keys()
        if not load.failed:
            found = zip(load.operations, load.task.result(), strict=True)
            self._kept.keep([(asked.key, outcome) for asked, outcome in found if asked.key in keys], load.read_at)
        self._after(writes)

    def _before(self, writes: Sequence[Key]) -> None:
        written = self._written
        for key in writes:
            written[key] = written.get(key, 0) + 1
        self._forget(writes)

    def _after(self, writes: Sequence[Key]) -> None:
        written = self._written
        for key in writes:
            if written[key] == 1:
                del written[key]
            else:
                written[key] -= 1
        self._forget(writes)
        if self._metrics is not None:
            self._metrics.held(len(self._kept), self._kept.size_bytes, self._kept.evictions)

    def _forget(self, keys: Sequence[Key]) -> None:
        self._loads.forget(keys)
        self._kept.drop(keys)

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


_AGAIN = DeadlineExceeded("the deadline was over while another get read the record")
"""Instead of an answer: the get has to ask again, or if its time is over, this is its outcome."""
