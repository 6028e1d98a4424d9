"""The format of a record in Redis: the value's JSON text, followed by sixteen characters of JSON whitespace.

The whitespace consists of a fixed marker of four characters and twelve random characters. JSON parsers ignore it. The
random characters make the bytes of every write different, so a digest of the bytes is an exact etag and no version must
be stored. The marker shows that the text is canonical. Another tool wrote text without it. Such text is parsed as JSON.
"""

import contextlib
import os
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh3_128_hexdigest

from ...core import (
    NO_MEMORY,
    Record,
    RecordUnreadable,
    Results,
    Stored,
    TableError,
    TooLarge,
    encode,
    etag_column,
    have_text,
    may_be_column,
    parse,
)
from . import remembered

_MARKER = b"\r\t\r\t"
_RANDOM_LENGTH = 12
_SUFFIX_LENGTH = len(_MARKER) + _RANDOM_LENGTH
_VALUE_END = b"}" + _MARKER
_BRACE = ord("{")
_WHITESPACE = bytes(b" \t\n\r"[byte % 4] for byte in range(256))

_WRONG_TYPE = "another tool wrote the record: the Redis key is not a string"
_NOT_AN_OBJECT = "another tool wrote the record, and it is not a valid JSON object"


def pack_all(values: Sequence[bytes]) -> list[bytes]:
    """Return the bytes of records, which differ in each call."""
    random = os.urandom(_RANDOM_LENGTH * len(values)).translate(_WHITESPACE)
    return [
        b"".join((value, _MARKER, random[start : start + _RANDOM_LENGTH]))
        for value, start in zip(values, range(0, len(random), _RANDOM_LENGTH), strict=True)
    ]


def etag_of(raw: bytes) -> str:
    """Return the etag of a record's bytes."""
    return xxh3_128_hexdigest(raw)


def value_of(raw: bytes) -> bytes:
    """Return the value of a record's bytes that `pack` has returned."""
    return raw[:-_SUFFIX_LENGTH]


def read_all(raws: Sequence[bytes | None], expiries_ms: Sequence[int] = ()) -> Results:
    """Return the outcomes of Gets. `expiries_ms` is empty if no record expires."""
    if not expiries_ms and may_be_column(raws) and (results := _read_columns(raws)) is not None:
        return results
    present: Sequence[Any] = [raw for raw in raws if raw is not None] if None in raws else raws
    # One slice object for all records: `raw[a:b]` makes one for each.
    value, value_end = slice(-_SUFFIX_LENGTH), slice(-_SUFFIX_LENGTH - 1, -_RANDOM_LENGTH)
    failed: dict[int, TableError] = {}
    if {raw[value_end] for raw in present} <= {_VALUE_END} and {raw[0] for raw in present} <= {_BRACE}:
        values = [None if raw is None else raw[value] for raw in raws]
    else:
        found = [read(raw, 0) for raw in raws]
        failed = {at: one for at, one in enumerate(found) if isinstance(one, TableError)}
        values = [one.value if isinstance(one, Record) else None for one in found]
    digest = xxh3_128_hexdigest
    etags = [*map(digest, present)] if present is raws else [None if raw is None else digest(raw) for raw in raws]
    columns: dict[str, Sequence[Any]] = {"value": values, "etag": etags}
    if any(expiries_ms):
        columns["expires_ms"] = expiries_ms
    return Results(Record, columns, failed)


def _read_columns(raws: Sequence[bytes | None]) -> Results | None:
    """Return the outcomes of Gets of records without expiry, or None if the service did not write all of them."""
    column = pa.array(raws, pa.binary())
    end = -_RANDOM_LENGTH
    if not (have_text(column, -_SUFFIX_LENGTH - 1, end, _VALUE_END) and have_text(column, 0, 1, b"{")):
        return None
    hashed: Sequence[Any] = [raw or b"" for raw in raws] if column.null_count else raws
    etags = "".join(map(xxh3_128_hexdigest, hashed)).encode()
    return Results(Record, {"value": pc.binary_slice(column, 0, -_SUFFIX_LENGTH), "etag": etag_column(etags, column)})


def read(raw: bytes | None, expires_ms: int) -> Record | TableError | None:
    """Return the outcome of a Get."""
    if raw is None:
        return None
    try:
        return Record(_value(raw), xxh3_128_hexdigest(raw), expires_ms)
    except RecordUnreadable as error:
        return error


def stored(raw: bytes | None, expires_ms: int, side: bytes | None) -> Stored | RecordUnreadable | None:
    """Return the current record for a write. `side` is its side key, None if that is absent or was not read."""
    deleted, memory = False, NO_MEMORY
    try:
        deleted, memory = remembered.parse(side)
        if raw is not None:
            return Stored(_value(raw), xxh3_128_hexdigest(raw), expires_ms, memory)
    except RecordUnreadable as error:
        error.memory = memory
        return error
    return Stored(None, "", 0, memory) if remembered.outlives(memory) or (deleted and memory) else None


def wrong_type(side: bytes | None = None) -> RecordUnreadable:
    """Return the error for a Redis key that is a list, a hash or another type. `side` is its side key, if read."""
    error = RecordUnreadable(_WRONG_TYPE)
    with contextlib.suppress(RecordUnreadable):
        _, error.memory = remembered.parse(side)
    return error


def _value(raw: bytes) -> bytes:
    if raw[-_SUFFIX_LENGTH - 1 : -_RANDOM_LENGTH] == _VALUE_END and raw[:1] == b"{":
        return raw[:-_SUFFIX_LENGTH]
    try:
        return encode(parse(raw))
    except TooLarge as error:
        raise RecordUnreadable(f"another tool wrote the record: {error.detail}") from None
    except TableError:
        raise RecordUnreadable(_NOT_AN_OBJECT) from None
