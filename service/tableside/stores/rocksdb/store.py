"""The RocksDB store: one table's operations."""

import logging
from collections.abc import Awaitable, Sequence
from functools import partial
from typing import TypeVar

from rocksdict import WriteBatch

from ...core import (
    NO_DEADLINE,
    NOT_READ,
    READ_BYTES_MAX,
    Applying,
    Batch,
    Budget,
    Capabilities,
    Get,
    Operation,
    Outcome,
    Page,
    Range,
    Scan,
    StoreUnavailable,
    TableError,
    TableSpec,
    WriteHealth,
    WritesRejected,
    apply_by_kind,
    joined_outcomes,
    value_bytes,
)
from .database import Database, key_types_key
from .group_commit import Turn
from .reads import RecordReader
from .scans import Scanner
from .writes import RecordWriter

log = logging.getLogger(__name__)

Result = TypeVar("Result")

DROPPED_PER_STEP_MAX = 1000, 4 * 2**20
"""How many records, and about how many bytes of them, one step of a drop deletes."""


class RocksdbStore:
    """The records of one table: the keys of the database that begin with the table's prefix."""

    capabilities = Capabilities()

    def __init__(self, database: Database, spec: TableSpec, health: WriteHealth) -> None:
        self._database = database
        self._health = health
        self.spec = spec
        self._prefix = spec.name_in_store.encode() + b"\0"
        self._prefix_end = spec.name_in_store.encode() + b"\1"
        database.note_table(self._prefix, spec.delete_memory_s)
        self._reader = RecordReader(database, self._prefix, spec.key)
        self._writer = RecordWriter(database, spec, self._prefix)
        self._scanner = Scanner(database, spec, self._prefix)

    def apply(self, operations: Sequence[Operation], budget: Budget = NO_DEADLINE) -> Applying:
        """Read all keys in one call, or write in turns of bounded size, which are durable when this returns."""
        return apply_by_kind(
            operations, lambda batch: self._get(batch) if batch.kind is Get else self._write(batch, budget)
        )

    async def _get(self, gets: Batch) -> Sequence[Outcome]:
        try:
            return await self._reader.get(gets.keys)
        except Exception as error:  # noqa: BLE001  # logged
            return [self._failure(error)] * len(gets)

    async def _write(self, batch: Batch, budget: Budget) -> Sequence[Outcome]:
        turns: list[Sequence[Outcome]] = []
        count = read_bytes = 0
        try:
            while count < len(batch):
                if count and (stopped := self._stopped(read_bytes, budget)) is not None:
                    turns.append([stopped] * (len(batch) - count))
                    break
                work = partial(self._writer.write, batch[count:] if count else batch)
                turns.append(await self._database.run_write(work, durable=not self.spec.loading))
                count += len(turns[-1])
                if count < len(batch):
                    read_bytes += value_bytes(turns[-1])
        except Exception as error:  # noqa: BLE001  # logged
            turns.append([self._failure(error, writes=True)] * (len(batch) - count))
        outcomes = joined_outcomes(turns)
        self._health.observe(outcomes)
        return outcomes

    async def scan(self, scan: Scan) -> Page:
        """Read a page in the order of keys."""
        return await self._scanned(self._scanner.page(scan))

    async def splits(self, count_max: int) -> list[bytes]:
        """Divide the table into parts of similar size."""
        return await self._scanned(self._scanner.splits(count_max))

    async def drop(self) -> None:
        """Delete all keys of the table, and the types of its key. The row cache rules out a deletion of a range."""
        try:
            rest = Range(self._prefix, self._prefix_end)
            while not rest.empty:
                items, more = await self._database.run_scan(partial(self._database.items, rest, *DROPPED_PER_STEP_MAX))
                keys = [key for key, _ in items]
                await self._database.run_write(partial(self._delete, keys), durable=False)
                rest = Range(keys[-1] + b"\0" if more else self._prefix_end, self._prefix_end)
            await self._database.run_write(partial(self._delete, [key_types_key(self.spec)]))
        except TableError:
            raise
        except Exception as error:
            raise self._failure(error, writes=True) from error

    def _delete(self, keys: Sequence[bytes], turn: Turn) -> list[Outcome]:
        batch = WriteBatch(raw_mode=True)
        for key in keys:
            batch.delete(key)
        turn.spend(batch.size_in_bytes(), len(keys))
        self._database.write(batch)
        return []

    async def _scanned(self, work: Awaitable[Result]) -> Result:
        try:
            return await work
        except TableError:
            raise
        except Exception as error:
            raise self._failure(error) from error

    def _failure(self, error: Exception, *, writes: bool = False) -> TableError:
        """Return the outcome for an error of the driver, whose text may contain paths: only the log has it."""
        if isinstance(error, TableError):
            return error
        log.error("RocksDB failed", exc_info=error)
        if writes:
            return WritesRejected(f"table {self.spec.name!r}: RocksDB could not write", applied="unknown")
        return StoreUnavailable(f"table {self.spec.name!r}: RocksDB could not read")

    def _stopped(self, read_bytes: int, budget: Budget) -> TableError | None:
        """Return the outcome of operations that are not attempted after others, or None if they are attempted.

        `read_bytes` is the size of the values that the others returned.
        """
        if budget.is_over():
            return budget.exceeded()
        return NOT_READ if read_bytes > READ_BYTES_MAX else None
