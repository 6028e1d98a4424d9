"""Converts the rows that PostgreSQL returns to records, and records to the arrays that statements take."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, cast

import msgspec

from ...core import Key, Outcome, Record, RecordUnreadable, Stored, Yielder
from .json_text import LINE_SEPARATOR, convert, needs_parsing
from .schema import EXPIRES, WRITERS
from .value_columns import Texts

SMALL_BYTES_MAX = 2**20
"""Values of up to this size together may be taken in one step."""

Writers = tuple[tuple[str, int], ...]

_decode_writers = msgspec.json.Decoder(Writers).decode


class SideRow(msgspec.Struct, frozen=True):
    """A row of a side table: the record's version, the expiry of that version, and the record's last writers."""

    version: int | None = None
    expires_ms: int = 0
    writers: Writers = ()


class Row(msgspec.Struct, frozen=True):
    """A record to write: its key, the texts of its columns, its expiry and its writers."""

    key: Key
    texts: Texts
    expires_ms: int = 0
    writers: Writers = ()


def values_bytes(result: Any, parts: int) -> int:
    """Return the size of the values that a `read` statement found. `parts` is the number of key columns."""
    size_bytes: int | None = result[parts]
    return size_bytes or 0


async def outcomes_by_key(result: Any, parts: int) -> dict[Key, Outcome]:
    """Return the outcomes of a `read` statement by key. `parts` is the number of key columns.

    Values that need no conversion, of up to `SMALL_BYTES_MAX` together, are taken in one step. Otherwise other tasks
    may run between the records.
    """
    keys, (_, lines, all_objects, etags, expires) = result[:parts], result[parts:]
    if lines is None:
        return {}
    by_key, texts, count = _zip_keys(keys), lines.split(LINE_SEPARATOR), len(keys[0])
    if len(lines) <= SMALL_BYTES_MAX and all_objects and expires is None and not needs_parsing(lines, count):
        return dict(zip(by_key, map(Record, texts, etags.split(",")), strict=True))
    found: dict[Key, Outcome] = {}
    yielder = Yielder()
    for key, text, etag, expiry in zip(by_key, texts, etags.split(","), expires or [0] * count, strict=True):
        if yielder.due:
            await yielder.maybe_yield()
        value = await convert(text)
        found[key] = value if isinstance(value, RecordUnreadable) else Record(value, etag, expiry or 0)
    return found


def row_key(row: Any, parts: int) -> Key:
    """Return the key in the first columns of a row."""
    return cast("Key", row[0] if parts == 1 else tuple(row[:parts]))


def locked_bytes(rows: Sequence[Any]) -> int:
    """Return the size of the values that a `lock` statement found."""
    return int(rows[0][-1] or 0) if rows else 0


async def stored_record(row: Any, parts: int) -> Stored | RecordUnreadable:
    """Return the stored record from a row of a `lock` statement."""
    text, etag, expires, writers, _ = row[parts:]
    value = None if text is None else await convert(text)
    if isinstance(value, RecordUnreadable):
        value.writers = parse_writers(writers)
        return value
    return Stored(value, etag, expires or 0, parse_writers(writers))


async def stored_records(rows: list[Any], parts: int) -> dict[Key, Stored | RecordUnreadable]:
    """Return the stored records from the rows of a `lock` statement by key. The list is empty afterwards."""
    found, yielder = dict[Key, Stored | RecordUnreadable](), Yielder()
    while rows:
        await yielder.maybe_yield()
        row = rows.pop()
        found[row_key(row, parts)] = await stored_record(row, parts)
    return found


def side_row(row: Any, parts: int) -> SideRow:
    """Return the side row from a row of a `side_lock` statement."""
    version, expires, writers = row[parts:]
    return SideRow(version, expires or 0, parse_writers(writers))


def with_side_row(stored: Stored | RecordUnreadable | None, side: SideRow) -> Stored | RecordUnreadable | None:
    """Return a stored record with its side row's metadata. An expiry applies only to the version it was set for."""
    if stored is None:
        return Stored(None, "", side.expires_ms, side.writers) if side.writers else None
    if isinstance(stored, RecordUnreadable):
        stored.writers = side.writers
        return stored
    expires_ms = side.expires_ms if stored.etag == str(side.version) else 0
    return Stored(stored.value, stored.etag, expires_ms, side.writers)


def parse_writers(text: str | None) -> Writers:
    """Return the writers in a column's text, or none if another tool wrote an invalid text."""
    if text is None:
        return ()
    try:
        return _decode_writers(text)
    except msgspec.DecodeError:
        return ()


def format_writers(writers: Writers) -> str | None:
    """Return the text that is stored for writers, or None if there are none."""
    return msgspec.json.encode(writers).decode() if writers else None


def key_arrays(keys: Sequence[Key], parts: int) -> list[list[Any]]:
    """Return one array for each part of the keys."""
    if parts == 1:
        return [list(keys)]
    return [list(column) for column in zip(*cast("Sequence[tuple[Any, ...]]", keys), strict=True)]


def row_arrays(rows: Sequence[Row], parts: int, metadata: Collection[str]) -> list[list[Any]]:
    """Return one array for each column to write: key parts, data columns, and the `metadata` columns."""
    arrays = key_arrays([row.key for row in rows], parts)
    arrays += [list(column) for column in zip(*(row.texts for row in rows), strict=True)]
    if EXPIRES in metadata:
        arrays.append([row.expires_ms or None for row in rows])
    if WRITERS in metadata:
        arrays.append([format_writers(row.writers) for row in rows])
    return arrays


def etags_and_values(rows: Iterable[Any], parts: int) -> Mapping[Key, tuple[str, bytes | None]]:
    """Return, by key, the etag and the value that a write statement returned. The value is None if it returned none."""
    return {row_key(row, parts): (row[parts], row[parts + 1] if len(row) > parts + 1 else None) for row in rows}


def _zip_keys(columns: Sequence[list[Any]]) -> Iterable[Key]:
    return columns[0] if len(columns) == 1 else zip(*columns, strict=True)
