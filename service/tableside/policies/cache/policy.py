"""The cache policy: answers gets from its entries, and reads the others from the store.

Writes go to the store. Before and after each write, successful or not, the cache drops the entry of its key, and does
not cache reads of the key that began earlier. A get after an acknowledged write therefore never returns an older value.
Scans bypass the cache.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import cast

from ...core import NO_DEADLINE, Budget, Clock, Get, Key, Operation, Outcome, Store, now_ms
from ...core.batch import at_positions, direction
from ...core.store import Policy
from ..metrics import CacheMetrics, PolicyMetrics
from .entries import Entries


class Cache(Policy):
    """A store that caches records and absences that were read.

    It has at most `records_max` entries and about `bytes_max` bytes. `ttl_s` (records) and `absent_ttl_s` (absences)
    count from the start of the read. With 0 the cache stores nothing. `clock` returns Unix milliseconds and decides
    when records expire. `monotonic` returns seconds and measures ages.
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
    ) -> None:
        super().__init__(inner)
        self._clock = clock
        self._monotonic = monotonic
        self._entries = Entries(records_max=records_max, bytes_max=bytes_max, ttl_s=ttl_s, absent_ttl_s=absent_ttl_s)
        self._reading: dict[Key, object] = {}
        """The last read in flight of each key, unless a write of the key began or ended since. Only it is cached."""
        self._writing = Counter[Key]()
        self._metrics = CacheMetrics(metrics or PolicyMetrics(), inner.spec.name, inner.spec.partition)
        self._suspended = False

    def suspend(self) -> None:
        """Drop all entries, and bypass the cache until `resume`, because some writes do not pass through it."""
        self._suspended = True
        self._reading.clear()
        self._entries.clear()
        self._update_gauges()

    def resume(self) -> None:
        """Cache entries again."""
        self._suspended = False

    async def apply(self, operations: Sequence[Operation], budget: Budget = NO_DEADLINE) -> Sequence[Outcome]:
        """Answer gets from the entries, and read the others in one call of the store. Pass on writes."""
        if direction(operations) == "write":
            return await self._write(operations, budget)
        if self._suspended:
            return await self._inner.apply(operations, budget)
        gets = cast("list[Get]", [*operations])
        outcomes: list[Outcome] = [None] * len(gets)
        now = self._monotonic()
        missing, oldest = self._entries.fill(gets, range(len(gets)), outcomes, now, self._clock)
        if len(missing) < len(gets):
            self._metrics.count_hits(len(gets) - len(missing), now - oldest)
        if missing:
            self._metrics.count_misses(len(missing), sum(gets[position].max_age_s == 0 for position in missing))
            asked = operations if len(missing) == len(gets) else at_positions(operations, missing)
            answers = await self._read(asked, [gets[position].key for position in missing], budget)
            for position, answer in zip(missing, answers, strict=True):
                outcomes[position] = answer
        return outcomes

    async def close(self) -> None:
        """Drop all entries. Then close the inner store."""
        self.suspend()
        await super().close()

    async def _read(self, operations: Sequence[Operation], keys: Sequence[Key], budget: Budget) -> Sequence[Outcome]:
        """Read records in one call of the store, and cache those whose keys had no write in the meantime."""
        this, read_at = object(), self._monotonic()
        self._reading.update(dict.fromkeys(keys, this))
        current = set[Key]()
        try:
            answers = await self._inner.apply(operations, budget)
        finally:
            current = {key for key in keys if self._reading.get(key) is this}
            for key in current:
                del self._reading[key]
        current -= self._writing.keys()
        if current:
            found = zip(keys, answers, strict=True)
            self._entries.put([(key, outcome) for key, outcome in found if key in current], read_at)
        self._update_gauges()
        return answers

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

    def _forget(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self._reading.pop(key, None)
        self._entries.drop(keys)

    def _update_gauges(self) -> None:
        self._metrics.update_size(len(self._entries), self._entries.size_bytes, self._entries.evictions)
