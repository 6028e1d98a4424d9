"""Rows to records and back: what PostgreSQL answers, and what it is sent. Knows nothing of connections."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, cast

import msgspec

from ...core import Key, Outcome, Record, RecordUnreadable, Stored
from .json_text import LINE, canonical, canonical_or_error, suspect
from .schema import EXPIRES, WRITERS
from .value_columns import Texts

Writers = tuple[tuple[str, int], ...]

_decode_writers = msgspec.json.Decoder(Writers).decode


class Remembered(msgspec.Struct, frozen=True):
    """What a side table has of a record: the version that it is about, when that expires, and who wrote it."""

    version: int | None = None
    expires_ms: int = 0
    writers: Writers = ()


class Row(msgspec.Struct, frozen=True):
    """A record to write: its columns' texts, its expiry, its writers."""

    key: Key
    texts: Texts
    expires_ms: int = 0
    writers: Writers = ()


def records(answer: Any, parts: int) -> dict[Key, Outcome]:
    """Return the records of a `read` by key."""
    keys, (together, objects, etags, expires) = answer[:parts], answer[parts:]
    if together is None:
        return {}
    found: Iterable[Outcome]
    if objects and expires is None and not suspect(together, len(keys[0])):
        found = map(Record, together.split(LINE), etags.split(","))
    else:
        texts = map(canonical_or_error, together.split(LINE))
        found = map(_record, texts, etags.split(","), expires or [0] * len(keys[0]))
    return dict(zip(_keys(keys), found, strict=True))


def key_of(row: Any, parts: int) -> Key:
    """Return the key that a row begins with."""
    return cast("Key", row[0] if parts == 1 else tuple(row[:parts]))


def stored(row: Any, parts: int) -> Stored | RecordUnreadable:
    """Return what a `lock` found in a row."""
    text, etag, expires, writers = row[parts:]
    try:
        value = None if text is None else canonical(text)
    except RecordUnreadable as error:
        return error
    return Stored(value, etag, expires or 0, read_writers(writers))


def with_side(found: Stored | RecordUnreadable | None, side: Remembered) -> Stored | RecordUnreadable | None:
    """Return what is stored, with what a side table remembers: an expiry only of the version that it was set for."""
    if found is None:
        return Stored(None, "", side.expires_ms, side.writers) if side.writers else None
    if isinstance(found, RecordUnreadable):
        return found
    expires_ms = side.expires_ms if found.etag == str(side.version) else 0
    return Stored(found.value, found.etag, expires_ms, side.writers)


def read_writers(text: str | None) -> Writers:
    """Return the writers that a text names; what another tool wrote there names none."""
    if text is None:
        return ()
    try:
        return _decode_writers(text)
    except msgspec.DecodeError:
        return ()


def writers_text(writers: Writers) -> str | None:
    """Return writers as they are kept."""
    return msgspec.json.encode(writers).decode() if writers else None


def key_arrays(keys: Sequence[Key], parts: int) -> list[list[Any]]:
    """Return an array for each part of the keys."""
    if parts == 1:
        return [list(keys)]
    return [list(column) for column in zip(*cast("Sequence[tuple[Any, ...]]", keys), strict=True)]


def row_arrays(rows: Sequence[Row], parts: int, memory: Collection[str]) -> list[list[Any]]:
    """Return an array for each column of rows to write."""
    arrays = key_arrays([row.key for row in rows], parts)
    arrays += [list(column) for column in zip(*(row.texts for row in rows), strict=True)]
    if EXPIRES in memory:
        arrays.append([row.expires_ms or None for row in rows])
    if WRITERS in memory:
        arrays.append([writers_text(row.writers) for row in rows])
    return arrays


def answers(rows: Iterable[Any], parts: int) -> Mapping[Key, tuple[str, bytes | None]]:
    """Return, by key, the etag and perhaps the value that a writing statement answered."""
    return {key_of(row, parts): (row[parts], row[parts + 1] if len(row) > parts + 1 else None) for row in rows}


def _record(text: bytes | RecordUnreadable, etag: str, expires: int | None) -> Outcome:
    return text if isinstance(text, RecordUnreadable) else Record(text, etag, expires or 0)


def _keys(columns: Sequence[list[Any]]) -> Iterable[Key]:
    return columns[0] if len(columns) == 1 else zip(*columns, strict=True)
