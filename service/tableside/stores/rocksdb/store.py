"""Records in a RocksDB database that this process owns.

A table is a prefix of the keys (its name and a zero byte) in the one column family: a table costs nothing until it
holds something, any number of them share the memory of one set of write buffers, and no column-family handle can
keep the database's lock when it is closed. A write is acknowledged when the write-ahead log is on the disk. What
has expired is skipped by reads and removed by a sweep.
"""

import asyncio
import contextlib
import itertools
import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from pydantic import BaseModel, Field
from rocksdict import AccessType, BlockBasedOptions, Cache, Options, Rdict, WriteBatch, WriteOptions

from ...core import (
    Applied,
    Capabilities,
    Changed,
    Clock,
    Get,
    InvalidOperation,
    Key,
    NoOptions,
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
    Written,
    after_all_with,
    between,
    now_ms,
    of_scan,
    transition,
)
from .group_commit import GroupCommit
from .records import pack, read, read_all, unpack

log = logging.getLogger(__name__)

Result = TypeVar("Result")

INLINE_KEYS_MAX = 16
"""Reads of up to this many keys are done on the loop: they take less time than the way to a thread and back."""

CELLS_PER_SPLIT = 16

SWEEP_PAUSE = 19
"""The sweep rests this many times as long as it worked, so that it takes a twentieth of a core."""


class RocksdbSettings(BaseModel, frozen=True, extra="forbid"):
    """Where the database is, and how much memory it may take; sizes in bytes, times in seconds."""

    path: str = Field(min_length=1)
    block_cache_bytes: int = Field(default=256 * 2**20, ge=2**20)
    write_buffer_bytes: int = Field(default=64 * 2**20, ge=2**20)
    sweep_every_s: float = Field(default=60.0, gt=0)


class RocksdbBackend:
    """One database, open in this process only."""

    Settings = RocksdbSettings
    TableOptions = NoOptions
    single_process = True

    def __init__(self, database: Rdict, settings: RocksdbSettings, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._versions = _versions()
        self._readers = ThreadPoolExecutor(2, "tableside-reader")
        self._writes: GroupCommit[list[Outcome]] = GroupCommit(partial(database.flush_wal, True), _not_durable)
        self._sweeper = asyncio.create_task(self._sweep_forever(settings.sweep_every_s))
        self._closed = False

    @classmethod
    async def open(cls, settings: RocksdbSettings, clock: Clock = now_ms) -> "RocksdbBackend":
        """Open the database, made if it is absent.

        Raise InvalidOperation if it cannot be made there, StoreUnavailable if another process has it.
        """
        try:
            Path(settings.path).mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240  # once, before anything runs
        except OSError as error:
            reason = error.strerror or str(error)
            raise InvalidOperation(f"the RocksDB directory {settings.path} cannot be made: {reason}") from error
        try:
            database = await asyncio.to_thread(
                Rdict, settings.path, _options(settings), access_type=AccessType.read_write()
            )
        except Exception as error:
            raise StoreUnavailable(f"the RocksDB database cannot be opened: {_first_line(error)}") from error
        return cls(database, settings, clock)

    async def store(self, spec: TableSpec) -> "RocksdbStore":
        """Return the records of one table."""
        return RocksdbStore(self, spec)

    async def tables(self) -> list[str]:
        """Return the names of the tables that hold anything."""
        return await self.read(lambda: list(self._table_names()))

    async def ping(self) -> None:
        """Return if the database answers."""
        if self._closed:
            raise StoreUnavailable("the RocksDB database is closed")

    async def close(self) -> None:
        """Finish the writes that were accepted, and give the lock back."""
        if self._closed:
            return
        self._closed = True
        self._sweeper.cancel()
        await asyncio.wait([self._sweeper])
        await self._writes.close()
        self._readers.shutdown()
        await asyncio.to_thread(self._database.close)

    # What the tables' stores use

    def now_ms(self) -> int:
        """Return the wall-clock time in Unix milliseconds."""
        return self._clock()

    def next_etag(self) -> str:
        """Return a version that no record here has had."""
        return f"{next(self._versions):016x}"

    def get(self, keys: list[bytes]) -> list[bytes | None]:
        """Read many keys in one call; safe on any thread."""
        return cast("list[bytes | None]", self._database.get(cast("list[Any]", keys)))

    def write(self, batch: WriteBatch) -> None:
        """Write at once, to be made durable by the group's sync; only on the writing thread."""
        self._database.write(batch, _UNSYNCED)

    def items(self, wanted: Range) -> Iterator[tuple[bytes, bytes]]:
        """Go through a range in order."""
        # The binding encodes an upper bound in read options as if the database were not in raw mode: checked here.
        for key, value in cast("Iterator[tuple[bytes, bytes]]", self._database.items(from_key=wanted.low)):
            if wanted.high is not None and key >= wanted.high:
                return
            yield key, value

    async def read(self, work: Callable[[], Result]) -> Result:
        """Do what reads much on a thread of its own."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, work)

    async def commit(self, work: Callable[[], list[Outcome]]) -> list[Outcome]:
        """Do what writes on the writing thread; returns when it is durable."""
        return await self._writes.run(work)

    def first_key(self, wanted: Range) -> bytes | None:
        """Return the first key of a range."""
        return next((key for key, _ in self.items(wanted)), None)

    def last_key(self, wanted: Range) -> bytes | None:
        """Return the last key of a range."""
        cursor = self._database.iter()
        if wanted.high is None:
            cursor.seek_to_last()
        else:
            cursor.seek_for_prev(wanted.high)
            if cursor.valid() and cursor.key() == wanted.high:
                cursor.prev()
        key = cast("bytes", cursor.key()) if cursor.valid() else None
        return key if key is not None and key >= wanted.low else None

    def _table_names(self) -> Iterator[str]:
        key = self.first_key(Range())
        while key is not None:
            name, _, _ = key.partition(b"\0")
            yield name.decode()
            key = self.first_key(Range(name + b"\1"))

    # The sweep

    async def _sweep_forever(self, every_s: float) -> None:
        while True:
            await asyncio.sleep(every_s)
            try:
                await self._sweep()
            except Exception:
                log.exception("what has expired could not be removed; the next sweep tries again")

    async def _sweep(self) -> None:
        position: bytes | None = b""
        while position is not None:
            started = time.perf_counter()
            position = await self._sweep_some(position)
            await asyncio.sleep(SWEEP_PAUSE * (time.perf_counter() - started))

    async def _sweep_some(self, low: bytes, keys_max: int = 2000) -> bytes | None:
        """Look at some records from `low` on, remove those that have expired, return where to go on."""
        expired, position = await self.read(partial(self._expired, low, keys_max))
        if expired:
            await self.commit(partial(self._remove_expired, expired))
        return position

    def _expired(self, low: bytes, keys_max: int) -> tuple[list[bytes], bytes | None]:
        now, key, count = self._clock(), low, 0
        expired = []
        for key, raw in itertools.islice(self.items(Range(low)), keys_max):
            count += 1
            if _has_expired(raw, now):
                expired.append(key)
        return expired, key + b"\0" if count == keys_max else None

    def _remove_expired(self, keys: list[bytes]) -> list[Outcome]:
        now, batch = self._clock(), WriteBatch(raw_mode=True)
        for key, raw in zip(keys, self.get(keys), strict=True):
            if raw is not None and _has_expired(raw, now):
                batch.delete(key)
        self.write(batch)
        return []


class RocksdbStore:
    """The records of one table."""

    capabilities = Capabilities()

    def __init__(self, backend: RocksdbBackend, spec: TableSpec) -> None:
        self._backend = backend
        self.spec = spec
        self._encode = spec.key.encode
        self._prefix = spec.name_in_store.encode() + b"\0"

    async def apply(self, operations: Sequence[Operation], until: float = math.inf) -> list[Outcome]:
        """Read in one call, write in one batch that is durable when this returns."""
        try:
            if set(map(type, operations)) <= {Get}:
                return await self._read(operations)
            return await self._backend.commit(partial(self._write, operations))
        except Exception as error:
            log.exception("RocksDB failed")
            return [_unavailable(error, operation) for operation in operations]

    async def scan(self, scan: Scan) -> Page:
        """Read a page in the order of keys."""
        return await self._looked_up(partial(self._page, scan))

    async def splits(self, count_max: int) -> list[bytes]:
        """Divide the table at keys that lie evenly between others."""
        boundaries = await self._looked_up(partial(self._boundaries, count_max))
        return [part.to_split() for part in between(boundaries)]

    async def _looked_up(self, work: Callable[[], Result]) -> Result:
        try:
            return await self._backend.read(work)
        except TableError:
            raise
        except Exception as error:
            log.exception("RocksDB failed")
            raise _unavailable(error) from error

    async def _read(self, operations: Sequence[Operation]) -> list[Outcome]:
        if len(operations) <= INLINE_KEYS_MAX:
            return self._found(operations)
        return await self._backend.read(partial(self._found, operations))

    def _found(self, operations: Sequence[Operation]) -> list[Outcome]:
        now, prefix, encode = self._backend.now_ms(), self._prefix, self._encode
        raws = self._backend.get([prefix + encode(operation.key) for operation in operations])
        return read_all(raws, now)

    def _write(self, operations: Sequence[Operation]) -> list[Outcome]:
        now, batch = self._backend.now_ms(), WriteBatch(raw_mode=True)
        keys = [self._prefix + self._encode(operation.key) for operation in operations]
        outcomes: list[Outcome] = []
        for key, raw, operation in zip(keys, self._backend.get(keys), operations, strict=True):
            if isinstance(operation, Get):
                outcomes.append(read(raw, now))
            else:
                outcomes.append(self._decided(batch, key, raw, operation, now))
        if not batch.is_empty():
            self._backend.write(batch)
        return outcomes

    def _decided(self, batch: WriteBatch, key: bytes, raw: bytes | None, operation: Write, now: int) -> Outcome:
        stored: Stored | RecordUnreadable | None
        try:
            stored = None if raw is None else unpack(raw)
        except RecordUnreadable as error:
            stored = error
        step = transition(stored, operation, self.spec, now_ms=now, etag=self._backend.next_etag())
        if isinstance(step, Changed):
            _keep(batch, key, step.stored)
        return step.outcome

    def _page(self, scan: Scan) -> Page:
        now, skip = self._backend.now_ms(), len(self._prefix)
        records: list[tuple[Key, Record]] = []
        size_bytes = 0
        wanted = of_scan(self.spec, scan)
        if wanted.empty:
            return Page([], None)
        for key, raw in self._backend.items(self._in_database(wanted)):
            if len(records) == scan.limit or size_bytes > scan.bytes_max:
                return Page(records, self._encode(records[-1][0]))
            found = read(raw, now)
            if isinstance(found, TableError):
                raise found
            if found is not None:
                records.append((self.spec.key.decode(key[skip:]), found))
                size_bytes += len(found.value)
        return Page(records, None)

    def _boundaries(self, count_max: int) -> list[bytes]:
        cells = self._cells(count_max * CELLS_PER_SPLIT)
        count = max(1, min(count_max, len(cells)))
        skip = len(self._prefix)
        return [cells[len(cells) * index // count].low[skip:] for index in range(1, count)]

    def _cells(self, count_max: int) -> list[Range]:
        """Halve the table, and the halves, between keys that are there, until there are enough parts."""
        cells, halved = [self._in_database(Range())], True
        while halved and len(cells) < count_max:
            halves = [self._halves(cell) for cell in cells]
            halved = any(len(parts) > 1 for parts in halves)
            cells = [part for parts in halves for part in parts]
        return cells

    def _halves(self, cell: Range) -> list[Range]:
        first, last = self._backend.first_key(cell), self._backend.last_key(cell)
        if first is None or last is None or first == last:
            return [cell]
        middle = self._backend.first_key(Range(_midpoint(first, last), cell.high))
        middle = last if middle is None else middle
        return [Range(cell.low, middle), Range(middle, cell.high)] if middle > first else [cell]

    def _in_database(self, wanted: Range) -> Range:
        if wanted.high is None:
            return Range(self._prefix + wanted.low, after_all_with(self._prefix))
        return Range(self._prefix + wanted.low, self._prefix + wanted.high)


_UNSYNCED = WriteOptions()


def _options(settings: RocksdbSettings) -> Options:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_write_buffer_size(settings.write_buffer_bytes)
    options.set_keep_log_file_num(4)
    table = BlockBasedOptions()
    table.set_block_cache(Cache(settings.block_cache_bytes))
    table.set_bloom_filter(10, False)
    options.set_block_based_table_factory(table)
    return options


def _versions() -> Iterator[int]:
    """Count up from the time in nanoseconds, so that versions of earlier runs do not come again."""
    version = 0
    while True:
        version = max(version + 1, time.time_ns())
        yield version


def _keep(batch: WriteBatch, key: bytes, stored: Stored | None) -> None:
    if stored is None:
        batch.delete(key)
    else:
        batch.put(key, pack(stored))


def _has_expired(raw: bytes, now_ms: int) -> bool:
    with contextlib.suppress(RecordUnreadable):
        return not unpack(raw).live(now_ms) if raw[1:2] != b"\0" and raw[:1] != b"{" else False
    return False


def _midpoint(first: bytes, last: bytes) -> bytes:
    """Return bytes half-way between two keys, as numbers of eight bytes after what they have in common."""
    common = 0
    while common < min(len(first), len(last)) and first[common] == last[common]:
        common += 1
    low = int.from_bytes(first[common : common + 8].ljust(8, b"\0"), "big")
    high = int.from_bytes(last[common : common + 8].ljust(8, b"\0"), "big")
    return first[:common] + ((low + high + 1) // 2).to_bytes(8, "big")


def _not_durable(error: Exception, outcomes: list[Outcome]) -> list[Outcome]:
    unknown = StoreUnavailable(f"RocksDB could not sync: {_first_line(error)}", applied="unknown")
    return [unknown if isinstance(outcome, Written) else outcome for outcome in outcomes]


def _unavailable(error: Exception, operation: Operation | None = None) -> StoreUnavailable:
    applied: Applied = "no" if operation is None or isinstance(operation, Get) else "unknown"
    return StoreUnavailable(f"RocksDB failed: {_first_line(error)}", applied=applied)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:200]
