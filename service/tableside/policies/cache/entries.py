"""The entries of a cache: records and absences, limited in number and in bytes, with least-recently-used eviction."""

import sys
from collections import OrderedDict
from collections.abc import Iterable, Sequence

import msgspec

from ...core import Clock, Get, Key, Outcome, Record

ENTRY_BYTES = 200
"""Measured memory of an entry without its key and record: its slot in the dictionary and in the LRU order."""

RECORD_BYTES = 150
"""Measured memory of a record without its value and etag."""


class Entry(msgspec.Struct, frozen=True, gc=False):
    """A record, or None for an absence. Times are from the monotonic clock."""

    record: Record | None
    read_at: float
    fresh_until: float
    size_bytes: int


class Entries:
    """Records and absences by key. `ttl_s` and `absent_ttl_s`, in seconds, count from the start of the read."""

    def __init__(self, *, records_max: int, bytes_max: int, ttl_s: float, absent_ttl_s: float) -> None:
        self.size_bytes = 0
        self.evictions = 0
        self._records_max = records_max
        self._bytes_max = bytes_max
        self._ttl_s = ttl_s
        self._absent_ttl_s = absent_ttl_s
        self._entries: OrderedDict[Key, Entry] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of records and absences."""
        return len(self._entries)

    def fill(
        self,
        gets: Sequence[Get],
        positions: Iterable[int],
        outcomes: list[Outcome],
        now: float,
        clock: Clock,
    ) -> tuple[list[int], float]:
        """Fill in the outcomes of gets that a sufficiently fresh entry answers.

        Return the remaining positions, and the time of the oldest read among the entries used (`now` if none is).
        """
        entries, rest, oldest = self._entries, [], now
        now_ms = clock()
        for position in positions:
            get = gets[position]
            entry = entries.get(get.key)
            if entry is None or now >= entry.fresh_until:
                rest.append(position)
                continue
            if get.max_age_s is not None and not 0 < get.max_age_s >= now - entry.read_at:
                rest.append(position)
                continue
            if (record := entry.record) is not None:
                if 0 < record.expires_ms <= now_ms:
                    rest.append(position)
                    continue
                outcomes[position] = Record(record.value, record.etag, record.expires_ms, now - entry.read_at)
            entries.move_to_end(get.key)
            if entry.read_at < oldest:
                oldest = entry.read_at
        return rest, oldest

    def put(self, found: Iterable[tuple[Key, Outcome]], read_at: float) -> None:
        """Store the records and absences of a read that began at `read_at`, in place of the entries of their keys.

        If one is too large or has no time to live, it is not stored, and the old entry is dropped. Errors are ignored.
        """
        entries = self._entries
        for key, record in found:
            if record is not None and type(record) is not Record:
                continue
            if key in entries:
                self._drop(key)
            ttl_s = self._absent_ttl_s if record is None else self._ttl_s
            size_bytes = _size_bytes(key, record)
            if ttl_s > 0 and size_bytes <= self._bytes_max:
                entries[key] = Entry(record, read_at, read_at + ttl_s, size_bytes)
                self.size_bytes += size_bytes
        while self.size_bytes > self._bytes_max or len(entries) > self._records_max:
            self.size_bytes -= entries.popitem(last=False)[1].size_bytes
            self.evictions += 1

    def drop(self, keys: Iterable[Key]) -> None:
        """Drop the entries of these keys."""
        for key in self._entries.keys() & keys:
            self._drop(key)

    def clear(self) -> None:
        """Drop all entries."""
        self._entries.clear()
        self.size_bytes = 0

    def _drop(self, key: Key) -> None:
        if (entry := self._entries.pop(key, None)) is not None:
            self.size_bytes -= entry.size_bytes


def _size_bytes(key: Key, record: Record | None) -> int:
    size_bytes = ENTRY_BYTES + key.__sizeof__()
    if type(key) is tuple:
        size_bytes += sum(map(sys.getsizeof, key))
    if record is not None:
        size_bytes += RECORD_BYTES + len(record.value) + len(record.etag)
    return size_bytes
