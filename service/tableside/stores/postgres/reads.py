"""Reads records by key: one statement for many, whose size the server checks before it sends them.

PostgreSQL prints a value's JSON text. `jsonb` prints numbers as decimals of any length (`1.0`, or `1e300` as 301
digits), and a space after `:` and `,`. The spaces may stay. Most texts need no conversion. `needs_parsing` detects this
by searching all texts of a result for a few byte patterns, which takes a twentieth of the time of parsing them.
"""

import json
import re
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import repeat
from typing import Any, cast

import msgspec

from ...core import (
    INTEGER_MAX,
    INTEGER_MIN,
    NOT_READ,
    UPDATE_BYTES_MAX,
    BoundedReads,
    Clock,
    InvalidOperation,
    Key,
    Outcome,
    ReadBudget,
    Record,
    RecordUnreadable,
    Stored,
    TableError,
    TooLarge,
    Yielder,
    check_elements,
    chunks_of,
    normalize_number,
    values,
)
from .connections import Connection, DeadlineRetry, Progress
from .statements import TableSql

READ_KEYS_MAX = 1000
"""How many records one statement reads."""

SMALL_BYTES_MAX = 2**20
"""Values of up to this size together are searched in one step."""

Writers = tuple[tuple[str, int], ...]

_LINE_SEPARATOR = b"\n"
"""The separator between the texts of a result. It never occurs within a text, because JSON escapes it."""

_decode_writers = msgspec.json.Decoder(Writers).decode


class SideRow(msgspec.Struct, frozen=True):
    """A row of a side table: the record's version, the expiry of that version, and the record's last writers."""

    version: int | None = None
    expires_ms: int = 0
    writers: Writers = ()


class FoundRecord(msgspec.Struct, frozen=True):
    """What a write found: the record, the etag of its row (empty if there is none), and its side row."""

    stored: Stored | RecordUnreadable | None = None
    etag: str = ""
    side: SideRow = SideRow()

    @property
    def value(self) -> bytes | None:
        """Return the value's JSON text, or None if there is no readable value."""
        return self.stored.value if isinstance(self.stored, Stored) else None


class RecordReader:
    """Reads records of one table."""

    def __init__(self, retry: DeadlineRetry, sql: TableSql, clock: Clock) -> None:
        self._retry = retry
        self._sql = sql
        self._clock = clock
        self._gets, self._updates = BoundedReads(), BoundedReads(UPDATE_BYTES_MAX)

    async def get(self, keys: Sequence[Key], until: float) -> Sequence[Outcome]:
        """Return the outcomes of Gets. Large records are read in several calls."""
        return await self._gets.read(keys, partial(self._read_in_chunks, until, False))

    async def find(self, keys: Sequence[Key], until: float) -> Sequence[FoundRecord | TableError]:
        """Return what a write of each record needs. Expired records and tombstones are present."""
        return await self._updates.read(keys, partial(self._read_in_chunks, until, True))

    async def _read_in_chunks(
        self, until: float, for_write: bool, keys: Sequence[Key], budget: ReadBudget
    ) -> list[Any]:
        found: list[Any] = []
        for chunk in chunks_of(keys, READ_KEYS_MAX):
            found += await self._retry.run_each(partial(self._read, for_write, budget), chunk, until)
        return found

    async def _read(
        self, for_write: bool, budget: ReadBudget, connection: Connection, keys: Sequence[Key], _: Progress
    ) -> list[Any]:
        """Read records in one statement. All are NOT_READ if they are together larger than the budget."""
        if budget.exceeded:
            return [NOT_READ] * len(keys)
        parts, bytes_max = len(self._sql.key_columns), int(min(budget.left_bytes, INTEGER_MAX))
        now_ms = None if for_write else self._clock()
        [row] = await connection.fetch(self._sql.read, *key_arrays(keys, parts), now_ms, bytes_max)
        size_bytes = row[parts] or 0
        budget.spend(size_bytes)
        if size_bytes > bytes_max:
            return [NOT_READ] * len(keys)
        found: dict[Key, Any] = {}
        if row[0] is not None:
            found = await (self._found(row, parts) if for_write else self._records(row, parts))
        absent = FoundRecord() if for_write else None
        return [found.get(key, absent) for key in keys]

    async def _records(self, row: Any, parts: int) -> dict[Key, Outcome]:
        """Return the outcomes of Gets. Values that need no conversion are taken in one step if they are small."""
        _, lines, all_objects, etags, expiries, *_ = row[parts:]
        columns = lines.split(_LINE_SEPARATOR), etags.split(","), expiries or repeat(0)
        if all_objects and len(lines) <= SMALL_BYTES_MAX and not needs_parsing(lines, len(row[0])):
            return dict(zip(_keys(row, parts), map(Record, *columns), strict=True))
        yielder, found = Yielder(), dict[Key, Outcome]()
        for key, text, etag, expires_ms in zip(_keys(row, parts), *columns, strict=False):
            if yielder.due:
                await yielder.maybe_yield()
            value = canonical(text)
            found[key] = Record(value, etag, expires_ms) if isinstance(value, bytes) else value
        return found

    async def _found(self, row: Any, parts: int) -> dict[Key, FoundRecord]:
        _, lines, _, etags, expiries, writers, versions = row[parts:]
        sides = map(SideRow, versions, expiries or repeat(0), map(parse_writers, writers))
        columns = lines.split(_LINE_SEPARATOR), etags.split(","), sides
        yielder, found = Yielder(), dict[Key, FoundRecord]()
        for key, text, etag, side in zip(_keys(row, parts), *columns, strict=True):
            if yielder.due:
                await yielder.maybe_yield()
            value = canonical(text) if text and etag else None
            found[key] = FoundRecord(self._stored(value, etag, side), etag, side)
        return found

    def _stored(
        self, value: bytes | RecordUnreadable | None, etag: str, side: SideRow
    ) -> Stored | RecordUnreadable | None:
        if isinstance(value, RecordUnreadable):
            value.writers = side.writers
            return value
        if value is None and not etag and not side.writers:
            return None
        applies = value is None or not self._sql.has_side_table or etag == str(side.version)
        return Stored(value, etag, side.expires_ms if applies else 0, side.writers)


def key_arrays(keys: Sequence[Key], parts: int) -> list[list[Any]]:
    """Return one array for each part of the keys."""
    if parts == 1:
        return [list(keys)]
    return [list(column) for column in zip(*cast("Sequence[tuple[Any, ...]]", keys), strict=True)]


def row_key(row: Any, parts: int) -> Key:
    """Return the key in the first columns of a row."""
    return cast("Key", row[0] if parts == 1 else tuple(row[:parts]))


def parse_writers(text: str | None) -> Writers:
    """Return the writers in a column's text, or none if another tool wrote an invalid text."""
    if text is None:
        return ()
    try:
        return _decode_writers(text)
    except msgspec.DecodeError:
        return ()


def _keys(row: Any, parts: int) -> Iterable[Key]:
    return cast("list[Key]", row[0]) if parts == 1 else zip(*row[:parts], strict=True)


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
    """Return a finite double, or the integer that it equals. Raise InvalidOperation if it is not finite."""
    return normalize_number(float(text))
