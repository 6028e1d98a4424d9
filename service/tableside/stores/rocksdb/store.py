"""The RocksDB store: one table's operations, scans and splits."""

import logging
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from rocksdict import WriteBatch

from ...core import (
    Applied,
    Capabilities,
    Changed,
    Get,
    Key,
    Operation,
    Outcome,
    Page,
    Range,
    Record,
    RecordUnreadable,
    Scan,
    Stored,
    StoreUnavailable,
    TableError,
    TableSpec,
    Write,
    prefix_end,
    ranges_between,
    scan_range,
    transition,
)
from .database import Database, first_line
from .records import pack, read, read_all, unpack

log = logging.getLogger(__name__)

Result = TypeVar("Result")

INLINE_KEYS_MAX = 16
"""Reads of up to this many keys run on the event loop: they take less time than switching to a thread and back."""

RANGES_PER_SPLIT = 16
"""How many ranges of keys are found for each split: more make the splits more even."""


class RocksdbStore:
    """The records of one table: the keys of the database that begin with the table's prefix."""

    capabilities = Capabilities()

    def __init__(self, database: Database, spec: TableSpec) -> None:
        self._database = database
        self.spec = spec
        self._encode = spec.key.encode
        self._prefix = spec.name_in_store.encode() + b"\0"

    async def apply(self, operations: Sequence[Operation], until: float = math.inf) -> list[Outcome]:
        """Read all keys in one call and write in one batch, which is durable when this returns."""
        try:
            if set(map(type, operations)) <= {Get}:
                return await self._read(operations)
            return await self._database.run_write(partial(self._write, operations))
        except Exception as error:
            log.exception("RocksDB failed")
            return [_unavailable(error, operation) for operation in operations]

    async def scan(self, scan: Scan) -> Page:
        """Read a page in the order of keys."""
        return await self._run_read(partial(self._page, scan))

    async def splits(self, count_max: int) -> list[bytes]:
        """Divide the table into parts of similar size."""
        boundaries = await self._run_read(partial(self._boundaries, count_max))
        return [part.to_split() for part in ranges_between(boundaries)]

    async def _run_read(self, work: Callable[[], Result]) -> Result:
        try:
            return await self._database.run_read(work)
        except TableError:
            raise
        except Exception as error:
            log.exception("RocksDB failed")
            raise _unavailable(error) from error

    # Operations

    async def _read(self, operations: Sequence[Operation]) -> list[Outcome]:
        if len(operations) <= INLINE_KEYS_MAX:
            return self._get(operations)
        return await self._database.run_read(partial(self._get, operations))

    def _get(self, operations: Sequence[Operation]) -> list[Outcome]:
        now, prefix, encode = self._database.now_ms(), self._prefix, self._encode
        raws = self._database.get([prefix + encode(operation.key) for operation in operations])
        return read_all(raws, now)

    def _write(self, operations: Sequence[Operation]) -> list[Outcome]:
        now, batch = self._database.now_ms(), WriteBatch(raw_mode=True)
        keys = [self._prefix + self._encode(operation.key) for operation in operations]
        outcomes: list[Outcome] = []
        for key, raw, operation in zip(keys, self._database.get(keys), operations, strict=True):
            if isinstance(operation, Get):
                outcomes.append(read(raw, now))
            else:
                outcomes.append(self._add_write(batch, key, raw, operation, now))
        if not batch.is_empty():
            self._database.write(batch)
        return outcomes

    def _add_write(self, batch: WriteBatch, key: bytes, raw: bytes | None, operation: Write, now: int) -> Outcome:
        stored: Stored | RecordUnreadable | None
        try:
            stored = None if raw is None else unpack(raw)
        except RecordUnreadable as error:
            stored = error
        step = transition(stored, operation, self.spec, now_ms=now, etag=self._database.next_etag())
        if isinstance(step, Changed):
            _add_record(batch, key, step.stored)
        return step.outcome

    # Scans and splits

    def _page(self, scan: Scan) -> Page:
        now, prefix_length = self._database.now_ms(), len(self._prefix)
        records: list[tuple[Key, Record]] = []
        size_bytes = 0
        key_range = scan_range(self.spec, scan)
        if key_range.empty:
            return Page([], None)
        for key, raw in self._database.items(self._in_database(key_range)):
            if len(records) == scan.limit or size_bytes > scan.bytes_max:
                return Page(records, self._encode(records[-1][0]))
            found = read(raw, now)
            if isinstance(found, TableError):
                raise found
            if found is not None:
                records.append((self.spec.key.decode(key[prefix_length:]), found))
                size_bytes += len(found.value)
        return Page(records, None)

    def _boundaries(self, count_max: int) -> list[bytes]:
        ranges = self._ranges(count_max * RANGES_PER_SPLIT)
        count = max(1, min(count_max, len(ranges)))
        prefix_length = len(self._prefix)
        return [ranges[len(ranges) * index // count].low[prefix_length:] for index in range(1, count)]

    def _ranges(self, count_max: int) -> list[Range]:
        """Divide the table's keys: halve every range that contains several, until there are `count_max` ranges."""
        ranges, halved = [self._in_database(Range())], True
        while halved and len(ranges) < count_max:
            halves = [self._halves(key_range) for key_range in ranges]
            halved = any(len(parts) > 1 for parts in halves)
            ranges = [part for parts in halves for part in parts]
        return ranges

    def _halves(self, key_range: Range) -> list[Range]:
        first, last = self._database.first_key(key_range), self._database.last_key(key_range)
        if first is None or last is None or first == last:
            return [key_range]
        middle = self._database.first_key(Range(_midpoint(first, last), key_range.high))
        middle = last if middle is None else middle
        return [Range(key_range.low, middle), Range(middle, key_range.high)] if middle > first else [key_range]

    def _in_database(self, key_range: Range) -> Range:
        """Return a range of the table's keys as a range of the database's keys."""
        if key_range.high is None:
            return Range(self._prefix + key_range.low, prefix_end(self._prefix))
        return Range(self._prefix + key_range.low, self._prefix + key_range.high)


def _add_record(batch: WriteBatch, key: bytes, stored: Stored | None) -> None:
    if stored is None:
        batch.delete(key)
    else:
        batch.put(key, pack(stored))


def _midpoint(first: bytes, last: bytes) -> bytes:
    """Return bytes half-way between two keys: the common prefix, and the mean of the next eight bytes as numbers."""
    common = 0
    while common < min(len(first), len(last)) and first[common] == last[common]:
        common += 1
    low = int.from_bytes(first[common : common + 8].ljust(8, b"\0"), "big")
    high = int.from_bytes(last[common : common + 8].ljust(8, b"\0"), "big")
    return first[:common] + ((low + high + 1) // 2).to_bytes(8, "big")


def _unavailable(error: Exception, operation: Operation | None = None) -> StoreUnavailable:
    applied: Applied = "no" if operation is None or isinstance(operation, Get) else "unknown"
    return StoreUnavailable(f"RocksDB failed: {first_line(error)}", applied=applied)
