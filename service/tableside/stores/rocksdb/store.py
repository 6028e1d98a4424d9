"""The RocksDB store: one table's operations."""

import logging
import math
import time
from collections.abc import Awaitable, Sequence
from functools import partial
from itertools import chain
from typing import TypeVar

import pyarrow as pa
from rocksdict import WriteBatch

from ...core import (
    NOT_READ,
    READ_BYTES_MAX,
    Capabilities,
    Changed,
    DeadlineExceeded,
    Get,
    GetColumn,
    Operation,
    Outcome,
    Page,
    PutColumn,
    RecordUnreadable,
    Scan,
    Stored,
    StoreUnavailable,
    TableError,
    TableSpec,
    Transition,
    Update,
    WriteHealth,
    WritesRejected,
    WrittenColumn,
    decide,
    value_bytes,
    with_etag,
)
from .database import Database
from .group_commit import Turn
from .reads import RecordReader
from .records import identity, stored_for_write
from .scans import Scanner
from .writes import LONG, RecordWriter

log = logging.getLogger(__name__)

Result = TypeVar("Result")

ATTEMPTS_MAX = 4
"""How often a long update is decided apart from the writer thread, if its record changes each time."""


class RocksdbStore:
    """The records of one table: the keys of the database that begin with the table's prefix."""

    capabilities = Capabilities()

    def __init__(self, database: Database, spec: TableSpec, health: WriteHealth) -> None:
        self._database = database
        self._health = health
        self.spec = spec
        self._prefix = spec.name_in_store.encode() + b"\0"
        self._reader = RecordReader(database, self._prefix, spec.key)
        self._writer = RecordWriter(database, spec, self._prefix, self._reader)
        self._scanner = Scanner(database, spec, self._prefix)

    async def apply(self, operations: Sequence[Operation], until: float = math.inf) -> Sequence[Outcome]:
        """Read all keys in one call, or write in turns of bounded size, which are durable when this returns."""
        turns: list[Sequence[Outcome]] = []
        count = read_bytes = 0
        try:
            if isinstance(operations, GetColumn):
                return await self._reader.get(operations)
            if not isinstance(operations, PutColumn) and set(map(type, operations)) <= {Get}:
                return await self._reader.get(operations)
            while count < len(operations):
                if count and (stopped := self._stopped(read_bytes, until)) is not None:
                    return _joined([*turns, [stopped] * (len(operations) - count)])
                remaining = operations[count:] if count else operations
                written = await self._database.run_write(partial(self._writer.write, remaining))
                if not isinstance(written, WrittenColumn):
                    written = await self._with_long(remaining, written, until)
                    read_bytes += value_bytes(written)
                turns.append(written)
                count += len(written)
        except Exception as error:
            log.exception("RocksDB failed")
            turns.append([self._unavailable(error, operation) for operation in operations[count:]])
        outcomes = _joined(turns)
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

    async def _with_long(
        self, operations: Sequence[Operation], outcomes: Sequence[Outcome], until: float
    ) -> Sequence[Outcome]:
        """Execute the updates whose outcomes are `LONG`."""
        if LONG not in outcomes:
            return outcomes
        return [
            await self._update_long(operation, until) if outcome is LONG else outcome
            for operation, outcome in zip(operations, outcomes, strict=False)
        ]

    async def _update_long(self, update: Operation, until: float) -> Outcome:
        try:
            return await self._decide_long(update, until)
        except Exception as error:
            log.exception("RocksDB failed")
            return self._unavailable(error, update)

    async def _decide_long(self, update: Operation, until: float) -> Outcome:
        """Decide a long update apart from the writer thread, and write it if the record is still the same."""
        assert isinstance(update, Update)
        [key] = self.spec.key.encode_all([update.key], self._prefix)
        for _ in range(ATTEMPTS_MAX):
            if time.monotonic() >= until:
                return DeadlineExceeded(f"table {self.spec.name!r}: the deadline was over")
            version, step = await self._decided(key, update)
            [outcome] = await self._database.run_write(partial(self._replace, key, version, step))
            if outcome is not LONG:
                return outcome
        [outcome] = await self._database.run_write(partial(self._writer.write, [update], any_length=True))
        return outcome

    async def _decided(self, key: bytes, update: Update) -> tuple[bytes | None, Transition]:
        """Return the `identity` of the record and the effect of the update. The record itself is freed."""
        version, stored = await self._database.run_read(partial(self._read_stored, key))
        return version, await decide(stored, update, self.spec, now_ms=self._database.now_ms(), etag="")

    def _read_stored(self, key: bytes) -> tuple[bytes | None, Stored | RecordUnreadable | None]:
        [raw] = self._database.get([key])
        return None if raw is None else identity(raw), stored_for_write(raw)

    def _replace(self, key: bytes, version: bytes | None, step: Transition, turn: Turn) -> list[Outcome]:
        """Write a decision if the record still has this `identity`. Otherwise the outcome is `LONG`."""
        [raw] = self._database.get([key])
        turn.spend(len(raw or b""))
        if (None if raw is None else identity(raw)) != version:
            return [LONG]
        del raw  # It may be large, and the driver is about to copy the new value.
        if isinstance(step, Changed):
            batch, step = WriteBatch(raw_mode=True), with_etag(step, self._database.next_etag())
            self._writer.add_record(batch, key, step.stored)
            turn.spend(batch.size_in_bytes(), 0)
            self._database.write(batch)
        return [step.outcome]

    def _stopped(self, read_bytes: int, until: float) -> TableError | None:
        """Return the outcome of operations that are not attempted after others, or None if they are attempted.

        `read_bytes` is the size of the values that the others returned.
        """
        if time.monotonic() >= until:
            return DeadlineExceeded(f"table {self.spec.name!r}: the deadline was over")
        return NOT_READ if read_bytes > READ_BYTES_MAX else None


def _joined(turns: Sequence[Sequence[Outcome]]) -> Sequence[Outcome]:
    """Return the outcomes of several turns, in a column if all are in columns."""
    columns = [turn.etags for turn in turns if isinstance(turn, WrittenColumn)]
    if columns and len(columns) == len(turns):
        return WrittenColumn(pa.concat_arrays(columns))
    return list(chain.from_iterable(turns))
