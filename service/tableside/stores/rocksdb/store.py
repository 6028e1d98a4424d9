"""The RocksDB store: one table's operations."""

import logging
import math
import time
from collections.abc import Awaitable, Sequence
from functools import partial
from itertools import chain
from typing import TypeVar

import pyarrow as pa

from ...core import (
    NOT_READ,
    READ_BYTES_MAX,
    Capabilities,
    DeadlineExceeded,
    Get,
    GetColumn,
    Operation,
    Outcome,
    Page,
    PutColumn,
    Scan,
    StoreUnavailable,
    TableError,
    TableSpec,
    WriteHealth,
    WritesRejected,
    WrittenColumn,
    value_bytes,
)
from .database import Database
from .reads import RecordReader
from .scans import Scanner
from .writes import RecordWriter

log = logging.getLogger(__name__)

Result = TypeVar("Result")


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
