"""Converts the rows that PostgreSQL returns to records, and records to the arrays that statements take."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, cast

import msgspec

from ...core import Key, Outcome, Record, RecordUnreadable, Stored, Yielder
from .json_text import LINE_SEPARATOR, canonical, canonical_or_error, needs_parsing
from .schema import EXPIRES, WRITERS
from .value_columns import Texts

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


def outcomes_by_key(result: Any, parts: int) -> dict[Key, Outcome]:
    """Return the outcomes of a `read` statement by key. `parts` is the number of key columns."""
    keys, (_, lines, all_objects, etags, expires) = result[:parts], result[parts:]
    if lines is None:
        return {}
    found: Iterable[Outcome]
    if all_objects and expires is None and not needs_parsing(lines, len(keys[0])):
        found = map(Record, lines.split(LINE_SEPARATOR), etags.split(","))
    else:
        texts = map(canonical_or_error, lines.split(LINE_SEPARATOR))
        found = map(_outcome, texts, etags.split(","), expires or [0] * len(keys[0]))
    return dict(zip(_zip_keys(keys), found, strict=True))


async def outcomes_by_key_in_turns(result: Any, parts: int) -> dict[Key, Outcome]:
    """Return the same as `outcomes_by_key`. Other tasks may run between the records."""
    keys, (_, lines, _, etags, expires) = result[:parts], result[parts:]
    columns = _zip_keys(keys), lines.split(LINE_SEPARATOR), etags.split(","), expires or [0] * len(keys[0])
    found: dict[Key, Outcome] = {}
    yielder = Yielder()
    for key, text, etag, expiry in zip(*columns, strict=True):
        if yielder.due:
            await yielder.maybe_yield()
        found[key] = _outcome(canonical_or_error(text), etag, expiry)
    return found


def row_key(row: Any, parts: int) -> Key:
    """Return the key in the first columns of a row."""
    return cast("Key", row[0] if parts == 1 else tuple(row[:parts]))


def locked_bytes(rows: Sequence[Any]) -> int:
    """Return the size of the values that a `lock` statement found."""
    return int(rows[0][-1] or 0) if rows else 0


def stored_record(row: Any, parts: int) -> Stored | RecordUnreadable:
    """Return the stored record from a row of a `lock` statement."""
    text, etag, expires, writers, _ = row[parts:]
    try:
        value = None if text is None else canonical(text)
    except RecordUnreadable as error:
        return error
    return Stored(value, etag, expires or 0, parse_writers(writers))


def side_row(row: Any, parts: int) -> SideRow:
    """Return the side row from a row of a `side_lock` statement."""
    version, expires, writers = row[parts:]
    return SideRow(version, expires or 0, parse_writers(writers))


def with_side_row(stored: Stored | RecordUnreadable | None, side: SideRow) -> Stored | RecordUnreadable | None:
    """Return a stored record with its side row's metadata. An expiry applies only to the version it was set for."""
    if stored is None:
        return Stored(None, "", side.expires_ms, side.writers) if side.writers else None
    if isinstance(stored, RecordUnreadable):
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


def _outcome(text: bytes | RecordUnreadable, etag: str, expires: int | None) -> Outcome:
    return text if isinstance(text, RecordUnreadable) else Record(text, etag, expires or 0)


def _zip_keys(columns: Sequence[list[Any]]) -> Iterable[Key]:
    return columns[0] if len(columns) == 1 else zip(*columns, strict=True)
