"""Reads for batches of gets, in turns of bounded size.

A batch uses one reader thread at a time, because two gain nothing: both need the interpreter between their reads.
"""

import asyncio
from collections.abc import Sequence
from functools import partial

import pyarrow as pa

from ...core import (
    COLUMN_BYTES_MAX,
    NOT_READ,
    READ_BYTES_MAX,
    GetColumn,
    KeyColumn,
    KeySchema,
    Operation,
    Outcome,
    RecordColumns,
)
from .database import Database
from .records import read_all, read_columns

INLINE_KEYS_MAX = 16
"""Reads of up to this many keys run on the event loop: they take less time than switching to a thread and back."""

INLINE_BYTES_MAX = 2**20
"""After so many bytes, such a read continues on a thread: a value of 16 MiB takes 15 ms."""

KEYS_PER_TURN_MAX = 1000
"""How many records one turn of a reader thread reads."""


class RecordReader:
    """Reads records of one table, whose keys in the database are `prefix` and the encoded key."""

    def __init__(self, database: Database, prefix: bytes, schema: KeySchema) -> None:
        self._database = database
        self._prefix = prefix
        self._schema = schema
        self._turn_is_over = False

    async def get(self, gets: Sequence[Operation]) -> Sequence[Outcome]:
        """Return the outcomes of gets, in columns if the gets are in a column.

        After values of READ_BYTES_MAX together, the others are NOT_READ.
        """
        names = self.names(gets)
        inline = len(names) <= INLINE_KEYS_MAX
        while inline and self._turn_is_over:  # noqa: ASYNC110  # an event would not keep the order of the reads
            await asyncio.sleep(0)
        if len(names) == 1:
            found = self._database.get(names)
            self._note_inline(len(found[0] or b""))
            return read_all(found, self._database.now_ms())
        call = _Call(self._database, names, in_columns=isinstance(gets, GetColumn))
        if inline:
            call.read(INLINE_BYTES_MAX)
            self._note_inline(call.size_bytes)
        while not call.complete:
            await self._database.run_read(partial(call.read, READ_BYTES_MAX))
        if call.waits:
            columns = call.columns()
            return await self._database.run_read(call.outcomes) if columns is None else columns
        return call.outcomes()

    def names(self, operations: Sequence[Operation]) -> list[bytes]:
        """Return the keys of the database for the records of operations."""
        if not isinstance(operations, KeyColumn):
            return self._schema.encode_all([operation.key for operation in operations], self._prefix)
        keys = operations.keys
        if pa.types.is_string(keys.type):  # Arrow's strings are UTF-8 already.
            return [self._prefix + key for key in keys.cast(pa.binary()).to_pylist()]
        return self._schema.encode_all(keys.to_pylist(), self._prefix)

    def _note_inline(self, size_bytes: int) -> None:
        """After a large read, let the next ones wait for the next iteration of the event loop: others come first."""
        if size_bytes > INLINE_BYTES_MAX:
            self._turn_is_over = True
            asyncio.get_running_loop().call_soon(self._begin_turn)

    def _begin_turn(self) -> None:
        self._turn_is_over = False


class _Call:
    """The reads of one call, which share a limit on the bytes of their values."""

    def __init__(self, database: Database, names: Sequence[bytes], *, in_columns: bool) -> None:
        self._database = database
        self._names = names
        self._now_ms = database.now_ms()
        self._raws: list[bytes | None] = []
        self._raws_bytes_max = COLUMN_BYTES_MAX if in_columns else -1  # Without columns, no record waits for others.
        self._outcomes: list[Outcome] = []
        self._count = 0
        self.size_bytes = 0

    @property
    def complete(self) -> bool:
        """Whether all records were read, or as many as fit."""
        return self._count == len(self._names) or self.size_bytes > READ_BYTES_MAX

    @property
    def waits(self) -> bool:
        """Whether all records were read and none is an outcome yet, because they may fit into columns."""
        return bool(self._raws)

    def columns(self) -> RecordColumns | None:
        """Return the outcomes in columns, or None if a record does not fit into them."""
        return read_columns(self._raws)

    def outcomes(self) -> list[Outcome]:
        """Return the outcomes as objects, which may take long if the call `waits`."""
        self._read_raws()
        return self._outcomes + [NOT_READ] * (len(self._names) - self._count)

    def read(self, bytes_max: int) -> None:
        """Read the next records, until the values of all turns exceed `bytes_max`."""
        stop = min(len(self._names), self._count + KEYS_PER_TURN_MAX)
        while self._count < stop and self.size_bytes <= bytes_max:
            count = self._database.keys_per_read(bytes_max - self.size_bytes, self._count, self.size_bytes)
            raws = self._database.get([*self._names[self._count : min(self._count + count, stop)]])
            self.size_bytes += sum(map(len, filter(None, raws)))
            self._count += len(raws)
            self._raws += raws
            del raws
            if self.size_bytes > self._raws_bytes_max:
                self._read_raws()  # They may be large, and the driver is about to copy the next.

    def _read_raws(self) -> None:
        self._outcomes += read_all(self._raws, self._now_ms)
        self._raws.clear()
