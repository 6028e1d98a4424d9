"""Reads records by key: one statement for many, whose size the server checks before it sends them.

PostgreSQL prints a value's JSON text. `jsonb` prints numbers as decimals of any length (`1.0`, or `1e300` as 301
digits), and a space after `:` and `,`. The spaces may stay. Most texts need no conversion. `needs_parsing` detects this
by searching all texts of a result for a few byte patterns, which takes a twentieth of the time of parsing them.
"""

import json
import re
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import chain, repeat
from typing import Any

import msgspec

from ...core import (
    INTEGER_MAX,
    INTEGER_MIN,
    NO_MEMORY,
    NOT_READ,
    Batch,
    BoundedReads,
    Clock,
    InvalidOperation,
    Key,
    Memory,
    Outcome,
    ReadBudget,
    Record,
    RecordUnreadable,
    Stored,
    TableError,
    TooLarge,
    VersionedRecord,
    Yielder,
    check_elements,
    chunks_of,
    normalize_number,
    values,
)
from .connections import Connection, DeadlineRetry, Progress
from .statements import TableSql

READ_KEYS_MAX = 1000
SMALL_BYTES_MAX = 2**20
"""How many records one statement reads, and up to which size all their values are searched in one step."""


class SideRow(msgspec.Struct, frozen=True):
    """A row of a side table: the record's version, the expiry of that version, and what the record remembers.

    A row without a version is a tombstone.
    """

    version: int | None = None
    expires_ms: int = 0
    memory: Memory = NO_MEMORY


class RowVersion(msgspec.Struct, frozen=True):
    """The version of a record: the etag of its row, which is empty if there is none, and its side row."""

    etag: str = ""
    side: SideRow = SideRow()


class RecordReader:
    """Reads records of one table."""

    def __init__(self, retry: DeadlineRetry, sql: TableSql, clock: Clock) -> None:
        self._retry = retry
        self._sql = sql
        self._clock = clock
        self._parts = len(sql.key_columns)
        self._bounded = BoundedReads()

    async def get(self, gets: Batch, until: float) -> Sequence[Outcome]:
        """Return the outcomes of Gets. Large records are read in several calls."""

        async def read(keys: Sequence[Key], budget: ReadBudget) -> list[Outcome]:
            work, chunks = partial(self._get, budget), chunks_of(keys, READ_KEYS_MAX)
            return [*chain.from_iterable([await self._retry.run_each(work, chunk, until) for chunk in chunks])]

        return await self._bounded.read(gets.keys, read)

    async def find(
        self, budget: ReadBudget, connection: Connection, keys: Sequence[Key], _: Progress
    ) -> list[VersionedRecord | TableError]:
        """Return what writes need. All are NOT_READ if the records are together larger than the budget.

        Side rows are read first. A later change of a row by Tableside then changes its side row too.
        """
        sides = await self.side_rows(self._sql.side_find, budget, connection, keys) if self._sql.has_side_table else {}
        if (rows := await self._read(self._sql.find, connection, keys, budget)) is None:
            return [NOT_READ] * len(keys)
        found, yielder = dict[Key, VersionedRecord](), Yielder()
        found_keys, columns = rows[0], rows[-1]
        for key, text, etag, expires_ms, writers in zip(found_keys, *columns, strict=False):
            if yielder.due:
                await yielder.maybe_yield()
            value, memory, side = canonical(text) if text else None, parse_memory(writers), _NO_SIDE_ROW
            if sides:  # An expiry applies only to the version it was set for.
                side = sides.get(key, _NO_SIDE_ROW)
                memory, expires_ms = side.memory, side.expires_ms if etag == str(side.version) else 0
            if isinstance(value, RecordUnreadable):
                value.memory = memory
            stored = value if isinstance(value, RecordUnreadable) else Stored(value, etag, expires_ms, memory)
            found[key] = VersionedRecord(stored, RowVersion(etag, side))
        for key, side in sides.items():
            if key not in found:
                tombstone = Stored(None, "", side.expires_ms, side.memory) if side.memory else None
                found[key] = VersionedRecord(tombstone, RowVersion("", side))
        return [found.get(key, _ABSENT) for key in keys]

    async def side_rows(
        self, statement: str, budget: ReadBudget, connection: Connection, keys: Sequence[Key]
    ) -> dict[Key, SideRow]:
        """Return the rows of the side table that a statement finds."""
        sides = {}
        for row in await connection.fetch(statement, *self._sql.key_arrays(keys)):
            version, expires_ms, writers = row[-3:]
            budget.spend(len(writers or ""))
            sides[self._sql.key_of(row)] = SideRow(version, expires_ms or 0, parse_memory(writers))
        return sides

    async def _get(self, budget: ReadBudget, connection: Connection, keys: Sequence[Key], _: Progress) -> list[Outcome]:
        if (rows := await self._read(self._sql.read, connection, keys, budget, self._clock())) is None:
            return [NOT_READ] * len(keys)
        found_keys, lines, all_objects, columns = rows
        if all_objects and len(lines) <= SMALL_BYTES_MAX and not needs_parsing(lines, len(columns[0])):
            return [*map(dict(zip(found_keys, map(Record, *columns), strict=True)).get, keys)]
        yielder, found = Yielder(), dict[Key, Outcome]()
        for key, text, etag, expires_ms in zip(found_keys, *columns, strict=False):
            if yielder.due:
                await yielder.maybe_yield()
            value = canonical(text)
            found[key] = Record(value, etag, expires_ms) if isinstance(value, bytes) else value
        return [*map(found.get, keys)]

    async def _read(
        self, statement: str, connection: Connection, keys: Sequence[Key], budget: ReadBudget, *now_ms: int
    ) -> tuple[Iterable[Key], bytes, bool, Sequence[Any]] | None:
        """Return the keys, the values in one text, whether all are objects, and the columns besides the keys.

        They are the values, the etags, the expiries, and of `find` the writers. None: the values exceed the budget.
        """
        if budget.exceeded:
            return None
        bytes_max = int(min(budget.left_bytes, INTEGER_MAX))
        [row] = await connection.fetch(statement, *self._sql.key_arrays(keys), bytes_max, *now_ms)
        size_bytes = row[self._parts] or 0
        budget.spend(size_bytes)
        if size_bytes > bytes_max:
            return None
        if row[0] is None:
            return [], b"", True, [[]]
        lines, all_objects, etags, expiries, *writers = row[self._parts + 1 :]
        found = row[0] if self._parts == 1 else zip(*row[: self._parts], strict=True)
        texts = lines.split(b"\n")  # JSON escapes a line feed within a text
        return found, lines, all_objects, [texts, etags.split(","), expiries or repeat(0), *writers]


_ABSENT = VersionedRecord(None, RowVersion())
_NO_SIDE_ROW = SideRow()


# What a record remembers: `[["w", 3]]`, or if it has had ordered writes `[{"": 5, "n": 7}, ["w", 3]]`

_decode_memory = msgspec.json.Decoder(list[dict[str, int] | tuple[str, int]]).decode


def memory_text(memory: Memory) -> str | None:
    """Return the text of a column of writers, or None if there is no memory."""
    entries = [*([msgspec.Raw(memory.orders)] if memory.orders else []), *memory.writers]
    return msgspec.json.encode(entries).decode() if entries else None


def parse_memory(text: str | None) -> Memory:
    """Return the memory in a column's text, or none if another tool wrote an invalid text."""
    try:
        entries = _decode_memory(text) if text else []
    except msgspec.DecodeError:
        entries = []
    if not entries:
        return NO_MEMORY
    orders = msgspec.json.encode(entries.pop(0)) if isinstance(entries[0], dict) else b""
    return Memory(tuple(entry for entry in entries if isinstance(entry, tuple)), orders)


# The text of values

_KEPT_BYTES = b"0123456789.,}]{[\n"
_DROPPED_BYTES = bytes(set(range(256)) - set(_KEPT_BYTES))
_NONZERO_DIGITS_TO_ONE = bytes.maketrans(b"123456789", b"111111111")
_DIGITS_TO_ONE = bytes.maketrans(b"023456789", b"111111111")
_LONG_INTEGER = b"1" * 19
_INTEGRAL = re.compile(rb"\.0+[,}\]]")
_RESERVED_NAME = re.compile(rb'"_ts')
_EMPTY_NAME = re.compile(rb'"":')


def canonical(text: bytes) -> bytes | RecordUnreadable:
    """Return a value's canonical text, or RecordUnreadable if the text is not a valid value."""
    if text[:1] == b"{" and not needs_parsing(text, 1):
        return text
    try:
        check_elements(text)
        return values.encode(json.loads(text, parse_int=_integer, parse_float=_double))
    except TooLarge as error:
        return RecordUnreadable(f"another tool wrote the record: {error.detail}")
    except (ValueError, RecursionError, InvalidOperation):
        return RecordUnreadable("another tool wrote the record, and it is not a valid JSON object")


def needs_parsing(texts: bytes, count: int) -> bool:
    """Return whether any of `count` objects, one per line, may be invalid or contain a number that is not canonical."""
    skeleton = texts.translate(_NONZERO_DIGITS_TO_ONE, _DROPPED_BYTES)
    return (
        skeleton.count(b"{") + skeleton.count(b"[") - count >= values.DEPTH_MAX
        or (b".0" in skeleton and _INTEGRAL.search(skeleton) is not None)
        or _LONG_INTEGER in skeleton.translate(_DIGITS_TO_ONE)
        or (b"_" in texts and _RESERVED_NAME.search(texts) is not None)
        or _EMPTY_NAME.search(texts) is not None
    )


def _integer(text: str) -> int | float:
    """Return an integer of 64 bits, or a double: `jsonb` stores 1e20 as its digits."""
    number = int(text)
    return number if INTEGER_MIN <= number <= INTEGER_MAX else _double(text)


def _double(text: str) -> int | float:
    return normalize_number(float(text))
