"""An open RocksDB database: reads, iteration, and writes that return when they are durable.

A table is a key prefix (its name and a zero byte) in the one column family. An empty table therefore costs little, and
all tables share the memory of one set of write buffers. No column-family handle can keep the database locked after it
is closed. Keys that begin with a zero byte are not of records. A write is durable when the write-ahead log is on disk.
"""

import asyncio
import contextlib
import logging
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar, cast

from rocksdict import Rdict, RdictIter, WriteBatch, WriteOptions

from ...core import Clock, Disk, Range, StoreUnavailable, TableSpec
from .group_commit import GroupCommit

log = logging.getLogger(__name__)

Result = TypeVar("Result")

Item: TypeAlias = tuple[bytes, bytes]
"""A key and the bytes of its record."""

FIRST_RECORD = b"\1"
"""No key of a record is before this one."""

_DISK_PROPERTIES = (
    "rocksdb.total-sst-files-size",
    "rocksdb.estimate-pending-compaction-bytes",
    "rocksdb.is-write-stopped",
    "rocksdb.actual-delayed-write-rate",
)

RECORDS_PER_TURN_MAX = 1000
TURN_BYTES_MAX = 4 * 2**20
"""How many records and bytes one turn of a reader thread examines. The record that exceeds the bytes is the last."""

KEYS_PER_READ_UNKNOWN = 8
SMALL_BYTES_MAX = 2**16
"""Until the first sweep, one call reads so many records if those before had at most this mean size, and else one."""

REOPEN_EVERY_S = 5.0
"""The pause between attempts to open the database again. Reads fail during an attempt."""

LOCK_ATTEMPTS_MAX = 100
LOCK_PAUSE_S = 0.01
"""How often, and at which intervals, an attempt tries to get the lock while a read on the old handle is in progress."""


@dataclass
class Contents:
    """The size of the largest of some records, and the prefixes of the tables whose records remember writes."""

    bytes_max: int = 0
    remembering: set[bytes] = field(default_factory=set)

    def add(self, record_bytes: int, remembering: bytes | None) -> None:
        """Add a record. `remembering` is the table's prefix if the record remembers writes."""
        self.bytes_max = max(self.bytes_max, record_bytes)
        if remembering is not None:
            self.remembering.add(remembering)


class Database:
    """The database that all tables of a backend share. Owns the driver's handle, two reader threads and one writer.

    `swept` are the records that the last complete sweep has found, None before the first one. `delete_memories_s` says
    for the prefix of each open table how long its absent records are remembered. Only work passed to `run_write` may
    call `write`, which does not sync, and `note_write`, which takes a record into account that is about to be written.
    """

    def __init__(self, handle: "Handle", now_ms: Clock) -> None:
        self.now_ms = now_ms
        self.delete_memories_s: dict[bytes, float] = {}
        self.write = handle.write
        self._handle = handle
        self._version_max = 0
        self._written = Contents()
        self.note_write = self._written.add
        self.swept = Contents() if self.search().first(FIRST_RECORD) is None else None
        self._readers = ThreadPoolExecutor(2, "tableside-reader")
        self._scan_turn = asyncio.Lock()
        self._writes = GroupCommit(handle.recover, handle.sync)
        self.run_write = self._writes.run

    def keys_per_read(self, bytes_left: int, read: int, read_bytes: int) -> int:
        """Return how many records the next call reads for at most `bytes_left`, after `read` ones with `read_bytes`."""
        if self.swept is None:
            return KEYS_PER_READ_UNKNOWN if read_bytes < SMALL_BYTES_MAX * read else 1
        return max(1, bytes_left // (max(self._written.bytes_max, self.swept.bytes_max) + 1))

    def remembers_writes(self, prefix: bytes) -> bool:
        """Return whether a record of a table may remember writes, which a write must keep."""
        return self.swept is None or prefix in self.swept.remembering or prefix in self._written.remembering

    def next_versions(self, count: int) -> range:
        """Return versions that no record has had, also in earlier runs. Only the writer thread may call this."""
        first = max(self._version_max + 1, time.time_ns())
        self._version_max = first + count - 1
        return range(first, first + count)

    def get(self, keys: list[bytes]) -> list[bytes | None]:
        """Read many keys in one call. Safe on any thread: other threads continue, unlike in a call for one key."""
        return cast("list[bytes | None]", self._handle.current.get(cast("list[Any]", keys)))

    def items(
        self, key_range: Range, count_max: int = RECORDS_PER_TURN_MAX, bytes_max: int = TURN_BYTES_MAX
    ) -> tuple[list[Item], bool]:
        """Return the first `count_max` items of a range, or as many as exceed `bytes_max`, and whether it has more."""
        found, size_bytes, high = list[Item](), 0, key_range.high
        # The binding encodes an upper bound in read options as if the database were not in raw mode: checked here.
        for item in entries(self._handle.current, key_range.low):
            if high is not None and item[0] >= high:
                break
            if len(found) == count_max or size_bytes > bytes_max:
                return found, True
            found.append(item)
            size_bytes += len(item[1])
        return found, False

    async def run_read(self, work: Callable[[], Result]) -> Result:
        """Run a large read on a reader thread."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, work)

    async def run_scan(self, turn: Callable[[], Result]) -> Result:
        """Run one short turn of a scan on a reader thread. Scans take turns on one thread and leave the other free."""
        async with self._scan_turn:
            return await self.run_read(turn)

    def search(self) -> "KeySearch":
        """Return a search for keys."""
        return KeySearch(self._handle.current)

    def table_names(self) -> list[str]:
        """Return the names of the tables that contain records."""
        names, search = [], self.search()
        key = search.first(FIRST_RECORD)
        while key is not None:
            name, _, _ = key.partition(b"\0")
            names.append(name.decode())
            key = search.first(name + b"\1")
        return names

    def disk(self) -> Disk:
        """Return the sizes of the table files and of their file system. RocksDB has its numbers in memory."""
        database = self._handle.current
        values = map(database.property_int_value, _DISK_PROPERTIES)
        used, pending, stopped, delayed_rate = (cast("int", value) for value in values)
        system = shutil.disk_usage(database.path())
        return Disk(used, pending, system.free, system.total, stopped + delayed_rate > 0)

    async def close(self) -> None:
        """Finish the accepted writes, end the threads and release the lock."""
        await self._writes.close()
        self._readers.shutdown()
        await asyncio.to_thread(self._handle.close)


class KeySearch:
    """Finds the keys next to other keys. A search sees the records that existed when it was created.

    Its two cursors are reused, because each new one reads a block of every file that has keys behind its position. A
    large record is a block of its own.
    """

    def __init__(self, database: Rdict) -> None:
        # One for each direction: a cursor that turns reads these blocks again.
        self._forward, self._backward = database.iter(), database.iter()

    def first(self, low: bytes) -> bytes | None:
        """Return the first key that is not before `low`, or None if there is none."""
        self._forward.seek(low)
        return _key_at(self._forward)

    def last(self, high: bytes) -> bytes | None:
        """Return the last key before `high`, or None if there is none."""
        self._backward.seek_for_prev(high)
        if _key_at(self._backward) == high:
            self._backward.prev()
        return _key_at(self._backward)


def _key_at(cursor: RdictIter) -> bytes | None:
    if cursor.valid():
        return cast("bytes", cursor.key())
    cursor.status()  # raises the error if the cursor has stopped at an unreadable block
    return None


def entries(database: Rdict, low: bytes = b"") -> Iterator[Item]:
    """Return the keys and values from `low` on, in order. Raise an error at an unreadable block.

    The driver's own iteration ends there like at the end of the database.
    """
    key = low
    for item in cast("Iterator[Item]", database.items(from_key=low)):
        yield item
        key = item[0]
    cursor = database.iter()
    cursor.seek(key)
    if cursor.valid():
        cursor.next()
    cursor.status()


class Handle:
    """The driver's handle of an open database, which is replaced after a failed write.

    After a write has failed, for example because the disk was full, RocksDB rejects all writes until the database is
    opened again. Reads continue on the old handle until the disk has room. `open_database` opens the database at
    `path`, which writes `room_bytes` there. Only one thread may write and recover.
    """

    def __init__(self, open_database: Callable[[], Rdict], path: str, room_bytes: int) -> None:
        self._open, self._path, self._room_bytes = open_database, path, room_bytes
        self._current: Rdict | None = open_database()
        self._failed = False
        self._reopen_at = 0.0

    @property
    def current(self) -> Rdict:
        """Return the driver's handle. Raise StoreUnavailable while the database is opened again."""
        if self._current is None:
            raise StoreUnavailable("RocksDB opens its database again after a failed write")
        return self._current

    def write(self, batch: WriteBatch) -> None:
        """Write without syncing."""
        try:
            self.current.write(batch, _UNSYNCED)
        except Exception:
            self._failed = True
            raise

    def sync(self) -> None:
        """Make all writes durable."""
        try:
            self.current.flush_wal(True)
        except Exception:
            self._failed = True
            raise

    def recover(self) -> None:
        """Open the database again if a write has failed, the disk has room, and the last attempt was not just now."""
        if not self._failed or time.monotonic() < self._reopen_at:
            return
        if shutil.disk_usage(self._path).free <= self._room_bytes:
            return
        self._reopen_at = time.monotonic() + REOPEN_EVERY_S
        self.close()
        self._current = None
        for attempt in range(1, LOCK_ATTEMPTS_MAX + 1):
            try:
                self._current = self._open()
            except Exception:
                if attempt == LOCK_ATTEMPTS_MAX:
                    log.exception("RocksDB cannot open its database again after a failed write")
                time.sleep(LOCK_PAUSE_S)
            else:
                self._failed = False
                log.warning("RocksDB has opened its database again after a failed write")
                return

    def close(self) -> None:
        """Release the database's lock. A failed write is not reported again."""
        if self._current is not None:
            with contextlib.suppress(Exception) if self._failed else contextlib.nullcontext():
                self._current.close()


def key_types_key(spec: TableSpec) -> bytes:
    """Return the key under which the types of a table's key are: with other types, encoded keys would be other keys."""
    return b"\0key\0" + spec.name_in_store.encode()


def table_prefix(key: bytes) -> bytes:
    """Return the prefix of the table that contains a key."""
    name, end, _ = key.partition(b"\0")
    return name + end


def first_line(error: Exception) -> str:
    """Return the first line of an error's message, at most 200 characters."""
    return str(error).partition("\n")[0][:200]


_UNSYNCED = WriteOptions()
