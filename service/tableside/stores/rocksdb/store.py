"""The RocksDB store: one table's operations."""

import asyncio
import logging
import math
from collections.abc import Awaitable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import TypeVar

from rocksdict import WriteBatch

from ...core import (
    NOT_READ,
    READ_BYTES_MAX,
    Capabilities,
    Changed,
    DeadlineExceeded,
    Get,
    Operation,
    Outcome,
    Page,
    RecordUnreadable,
    Scan,
    Stored,
    StoreUnavailable,
    TableError,
    TableSpec,
    Write,
    WriteHealth,
    WritesRejected,
    chunks_of,
    transition,
    value_bytes,
)
from .database import Database
from .group_commit import Turn
from .records import pack, read, read_all, unpack
from .scans import Scanner

log = logging.getLogger(__name__)

Result = TypeVar("Result")

INLINE_KEYS_MAX = 16
"""Reads of up to this many keys run on the event loop: they take less time than switching to a thread and back."""

KEYS_PER_GET_MAX = 8
"""How many records are read at once. The values of a call are counted after each of these reads."""

KEYS_PER_READ_MAX = 32
"""How many records a write reads at once: a turn of the writer thread may end after any of them."""


class RocksdbStore:
    """The records of one table: the keys of the database that begin with the table's prefix."""

    capabilities = Capabilities()

    def __init__(self, database: Database, spec: TableSpec, health: WriteHealth) -> None:
        self._database = database
        self._health = health
        self.spec = spec
        self._encode = spec.key.encode
        self._prefix = spec.name_in_store.encode() + b"\0"
        self._scanner = Scanner(database, spec, self._prefix)

    async def apply(self, operations: Sequence[Operation], until: float = math.inf) -> list[Outcome]:
        """Read all keys in one call; or write in turns of bounded size, which are durable when this returns."""
        outcomes: list[Outcome] = []
        try:
            if set(map(type, operations)) <= {Get}:
                return await self._read(operations)
            while len(outcomes) < len(operations):
                if outcomes and (stopped := self._stopped(outcomes, until)) is not None:
                    return outcomes + [stopped] * (len(operations) - len(outcomes))
                remaining = operations[len(outcomes) :] if outcomes else operations
                outcomes += await self._database.run_write(partial(self._write, remaining))
        except Exception as error:
            log.exception("RocksDB failed")
            outcomes += [self._unavailable(error, operation) for operation in operations[len(outcomes) :]]
        self._health.observe(outcomes)
        return outcomes

    async def scan(self, scan: Scan) -> Page:
        """Read a page in the order of keys."""
        return await self._scanned(self._scanner.page(scan))

    async def splits(self, count_max: int) -> list[bytes]:
        """Divide the table into parts of similar size."""
        return await self._scanned(self._scanner.splits(count_max))

    async def _scanned(self, work: Awaitable[Result]) -> Result:
        try:
            return await work
        except TableError:
            raise
        except Exception as error:
            log.exception("RocksDB failed")
            raise self._unavailable(error) from error

    def _unavailable(self, error: Exception, operation: Operation | None = None) -> TableError:
        """Return the outcome for an error of the driver, whose text may contain paths: only the log has it."""
        if isinstance(error, TableError):
            return error
        if operation is None or isinstance(operation, Get):
            return StoreUnavailable(f"table {self.spec.name!r}: RocksDB could not read")
        return WritesRejected(f"table {self.spec.name!r}: RocksDB could not write", applied="unknown")

    # Operations

    async def _read(self, operations: Sequence[Operation]) -> list[Outcome]:
        if len(operations) <= INLINE_KEYS_MAX:
            return self._get(operations)
        return await self._database.run_read(partial(self._get, operations))

    def _get(self, operations: Sequence[Operation]) -> list[Outcome]:
        """Read records, a few at a time until their values are too large together."""
        now, prefix, encode = self._database.now_ms(), self._prefix, self._encode
        keys = [prefix + encode(operation.key) for operation in operations]
        if len(keys) <= KEYS_PER_GET_MAX:
            return read_all(self._database.get(keys), now)
        raws: list[bytes | None] = []
        read_bytes = 0
        for some in chunks_of(keys, KEYS_PER_GET_MAX):
            found = self._database.get([*some])
            read_bytes += sum([len(raw) for raw in found if raw is not None])
            raws += found
            if read_bytes > READ_BYTES_MAX:
                break
        return read_all(raws, now) + [NOT_READ] * (len(keys) - len(raws))

    def _write(self, operations: Sequence[Operation], turn: Turn) -> list[Outcome]:
        """Execute the first operations, as many as the turn allows, and return their outcomes."""
        now, batch = self._database.now_ms(), WriteBatch(raw_mode=True)
        outcomes: list[Outcome] = []
        written_bytes = 0
        for key, raw, operation in self._with_stored(operations):
            if outcomes and turn.over:
                break
            if isinstance(operation, Get):
                outcomes.append(read(raw, now))
            else:
                outcomes.append(self._add_write(batch, key, raw, operation, now))
            before_bytes, written_bytes = written_bytes, batch.size_in_bytes()
            turn.spend(len(raw or b"") + written_bytes - before_bytes)
        if not batch.is_empty():
            self._database.write(batch)
        return outcomes

    def _with_stored(self, operations: Sequence[Operation]) -> Iterator[tuple[bytes, bytes | None, Operation]]:
        """Return each operation with its key in the database and the bytes stored there, which are read in parts."""
        return chain.from_iterable(map(self._read_part, chunks_of(operations, KEYS_PER_READ_MAX)))

    def _read_part(self, operations: Sequence[Operation]) -> Iterator[tuple[bytes, bytes | None, Operation]]:
        keys = [self._prefix + self._encode(operation.key) for operation in operations]
        return zip(keys, self._database.get(keys), operations, strict=True)

    def _stopped(self, outcomes: Sequence[Outcome], until: float) -> TableError | None:
        """Return the outcome of the operations that are not attempted after these; None if they are attempted."""
        if asyncio.get_running_loop().time() >= until:
            return DeadlineExceeded(f"table {self.spec.name!r}: the deadline was over")
        return NOT_READ if value_bytes(outcomes) > READ_BYTES_MAX else None

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


def _add_record(batch: WriteBatch, key: bytes, stored: Stored | None) -> None:
    if stored is None:
        batch.delete(key)
    else:
        batch.put(key, pack(stored))
