"""The cache policy: answers gets from its entries, and reads the others from the store.

Writes go to the store. Before and after each write, successful or not, the cache drops the entry of its key, and does
not cache reads of the key that began earlier. A get after an acknowledged write therefore never returns an older value.
Scans bypass the cache.
"""

import sys
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import cast

import msgspec

from ..core import NO_DEADLINE, Budget, Clock, Get, Key, Operation, Outcome, Record, Store, now_ms
from ..core.batch import at_positions, direction
from ..core.store import Policy
from .metrics import PolicyMetrics

ENTRY_BYTES = 200
"""Measured memory of an entry without its key and record: its slot in the dictionary and in the LRU order."""

RECORD_BYTES = 150
"""Measured memory of a record without its value and etag."""


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
        self._records_max, self._bytes_max = records_max, bytes_max
        self._ttl_s, self._absent_ttl_s = ttl_s, absent_ttl_s
        self._entries: OrderedDict[Key, Entry] = OrderedDict()
        """The least recently used first."""
        self._size_bytes = 0
        self._reading: dict[Key, object] = {}
        """The last read in flight of each key, unless a write of the key began or ended since. Only it is cached."""
        self._writing = Counter[Key]()
        self._suspended = False
        metrics, table = metrics or PolicyMetrics(), inner.spec.name
        self._hits, self._misses, self._bypassed = (
            metrics.cache_gets.labels(table, outcome) for outcome in ("hit", "miss", "bypassed")
        )
        self._age_seconds = metrics.cache_age_seconds.labels(table)
        self._evictions = metrics.cache_evictions.labels(table)
        self._records, self._bytes = metrics.cache_records.labels(table), metrics.cache_bytes.labels(table)
        self._sizes, self._partition = metrics.cache_sizes.setdefault(table, {}), inner.spec.partition

    def suspend(self) -> None:
        """Drop all entries, and bypass the cache until `resume`, because some writes do not pass through it."""
        self._suspended = True
        self._reading.clear()
        self._entries.clear()
        self._size_bytes = 0
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
        now = self._monotonic()
        outcomes, missing, oldest = self._find(gets, now)
        if len(missing) < len(gets):
            self._hits.inc(len(gets) - len(missing))
            self._age_seconds.observe(now - oldest)
        if missing:
            bypassed = sum(gets[position].max_age_s == 0 for position in missing)
            self._misses.inc(len(missing) - bypassed)
            self._bypassed.inc(bypassed)
            asked = operations if len(missing) == len(gets) else at_positions(operations, missing)
            answers = await self._read(asked, [gets[position].key for position in missing], budget)
            for position, answer in zip(missing, answers, strict=True):
                outcomes[position] = answer
        return outcomes

    async def close(self) -> None:
        """Drop all entries. Then close the inner store."""
        self.suspend()
        await super().close()

    def _find(self, gets: Sequence[Get], now: float) -> tuple[list[Outcome], list[int], float]:
        """Return the outcomes of gets that a sufficiently fresh entry answers, and None for the others.

        Return the positions of the others, and the time of the oldest read among the entries used (`now` if none is).
        """
        outcomes: list[Outcome] = [None] * len(gets)
        missing: list[int] = []
        entries, oldest, now_ms = self._entries, now, self._clock()
        for position, get in enumerate(gets):
            entry = entries.get(get.key)
            if (
                entry is None
                or now >= entry.fresh_until
                or (get.max_age_s is not None and not 0 < get.max_age_s >= now - entry.read_at)
                or ((record := entry.record) is not None and 0 < record.expires_ms <= now_ms)
            ):
                missing.append(position)
                continue
            if record is not None:
                outcomes[position] = Record(record.value, record.etag, record.expires_ms, now - entry.read_at)
            entries.move_to_end(get.key)
            if entry.read_at < oldest:
                oldest = entry.read_at
        return outcomes, missing, oldest

    async def _read(self, operations: Sequence[Operation], keys: Sequence[Key], budget: Budget) -> Sequence[Outcome]:
        """Read records in one call of the store, and cache those whose keys had no write in the meantime."""
        this, read_at = object(), self._monotonic()
        self._reading.update(dict.fromkeys(keys, this))
        try:
            answers = await self._inner.apply(operations, budget)
        finally:
            current = {key for key in keys if self._reading.get(key) is this}
            for key in current:
                del self._reading[key]
        current -= self._writing.keys()
        if current:
            found = zip(keys, answers, strict=True)
            self._keep([(key, outcome) for key, outcome in found if key in current], read_at)
        self._update_gauges()
        return answers

    def _keep(self, found: Iterable[tuple[Key, Outcome]], read_at: float) -> None:
        """Store the records and absences of a read that began at `read_at`, in place of the entries of their keys.

        If one is too large or has no time to live, it is not stored, and the old entry is dropped. Errors are ignored.
        """
        entries, evicted = self._entries, 0
        for key, record in found:
            if record is not None and type(record) is not Record:
                continue
            if (old := entries.pop(key, None)) is not None:
                self._size_bytes -= old.size_bytes
            ttl_s = self._absent_ttl_s if record is None else self._ttl_s
            size_bytes = _size_bytes(key, record)
            if ttl_s > 0 and size_bytes <= self._bytes_max:
                entries[key] = Entry(record, read_at, read_at + ttl_s, size_bytes)
                self._size_bytes += size_bytes
        while self._size_bytes > self._bytes_max or len(entries) > self._records_max:
            self._size_bytes -= entries.popitem(last=False)[1].size_bytes
            evicted += 1
        self._evictions.inc(evicted)

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
        for key in self._entries.keys() & keys:
            self._size_bytes -= self._entries.pop(key).size_bytes

    def _update_gauges(self) -> None:
        self._sizes[self._partition] = records, size_bytes = len(self._entries), self._size_bytes
        if len(self._sizes) > 1:
            records, size_bytes = map(sum, zip(*self._sizes.values(), strict=True))
        self._records.set(records)
        self._bytes.set(size_bytes)


class Entry(msgspec.Struct, frozen=True, gc=False):
    """A record, or None for an absence. Times are from the monotonic clock."""

    record: Record | None
    read_at: float
    fresh_until: float
    size_bytes: int


def _size_bytes(key: Key, record: Record | None) -> int:
    size_bytes = ENTRY_BYTES + key.__sizeof__()
    if type(key) is tuple:
        size_bytes += sum(map(sys.getsizeof, key))
    if record is not None:
        size_bytes += RECORD_BYTES + len(record.value) + len(record.etag)
    return size_bytes
