"""The format of a record in Redis: the value's JSON text, followed by sixteen characters of JSON whitespace.

The whitespace consists of a fixed marker of four characters and twelve random characters. JSON parsers ignore it. The
random characters make the bytes of every write different, so a digest of the bytes is an exact etag and no version must
be stored. The marker shows that the text is canonical. Another tool wrote text without it. Such text is parsed as JSON.

The tokens of a record's writers are JSON in a side key, the latest writer last: `[1, ["writer", sequence], ...]`. The
first element is 0 for the tombstone of a deleted record.
"""

import contextlib
import itertools
import os
import random
from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh3_128_hexdigest

from ...core import (
    Outcome,
    Record,
    RecordColumns,
    RecordUnreadable,
    Stored,
    TableError,
    TooLarge,
    column_of_equal_lengths,
    encode,
    etag_column,
    parse,
    text_of,
)

Writers = tuple[tuple[str, int], ...]

_MARKER = b"\r\t\r\t"
_RANDOM_LENGTH = 12
_SUFFIX_LENGTH = len(_MARKER) + _RANDOM_LENGTH
_VALUE_END = b"}" + _MARKER
_BRACE = ord("{")
_RANDOM_HALVES = [bytes(run) for run in itertools.product(b" \t\n\r", repeat=_RANDOM_LENGTH // 2)]
_HALVES = len(_RANDOM_HALVES)
_WHITESPACE = bytes(b" \t\n\r"[byte % 4] for byte in range(256))

_WRONG_TYPE = "another tool wrote the record: the Redis key is not a string"
_NOT_AN_OBJECT = "another tool wrote the record, and it is not a valid JSON object"
_INVALID_WRITERS = "another tool wrote the record's side key, and it does not contain writers' tokens"


def pack(value: bytes) -> bytes:
    """Return the bytes of a record, which differ in each call."""
    first, second = divmod(random.getrandbits(24), _HALVES)
    return b"".join((value, _MARKER, _RANDOM_HALVES[first], _RANDOM_HALVES[second]))


def pack_all(values: pa.Array) -> pa.Array:
    """Return the bytes of a column of records, which differ in each call."""
    count = len(values)
    ends = os.urandom(_RANDOM_LENGTH * count).translate(_WHITESPACE)
    return pc.binary_join_element_wise(values, _MARKER, column_of_equal_lengths(ends, count, pa.binary()), b"")


def etag_of(raw: bytes) -> str:
    """Return the etag of a record's bytes."""
    return xxh3_128_hexdigest(raw)


def etags_of(raws: Sequence[Any]) -> str:
    """Return the etags of the bytes of records, one after another."""
    return "".join(map(xxh3_128_hexdigest, raws))


def value_of(raw: bytes) -> bytes:
    """Return the value of a record's bytes that `pack` has returned."""
    return raw[:-_SUFFIX_LENGTH]


def read_all(raws: Sequence[bytes | None]) -> list[Outcome]:
    """Return the outcomes of Gets of records without expiry. Makes no call for each record that the service wrote."""
    digest, end, brace = xxh3_128_hexdigest, _VALUE_END, _BRACE
    # Two slices for all records: `raw[a:b]` makes one for each.
    value, value_end = slice(-_SUFFIX_LENGTH), slice(-_SUFFIX_LENGTH - 1, -_RANDOM_LENGTH)
    return [
        None
        if raw is None
        else Record(raw[value], digest(raw))
        if raw[value_end] == end and raw[0] == brace
        else read(raw, 0)
        for raw in raws
    ]


def read_columns(raws: Sequence[bytes | None]) -> RecordColumns | None:
    """Return the outcomes of Gets of records without expiry, or None if the service did not write all of them."""
    column = pa.array(raws, pa.binary())
    count = len(column) - column.null_count
    if not (
        text_of(pc.binary_slice(column, -_SUFFIX_LENGTH - 1, -_RANDOM_LENGTH)) == _VALUE_END * count
        and text_of(pc.binary_slice(column, 0, 1)) == b"{" * count
    ):
        return None
    hashed: Sequence[Any] = [raw or b"" for raw in raws] if column.null_count else raws
    return RecordColumns(pc.binary_slice(column, 0, -_SUFFIX_LENGTH), etag_column(etags_of(hashed), column))


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
    writers: Writers = ()
    try:
        deleted, writers = _parse_writers(side)
        if raw is not None:
            return Stored(_value(raw), xxh3_128_hexdigest(raw), expires_ms, writers)
    except RecordUnreadable as error:
        error.writers = writers
        return error
    # Without a record only a tombstone counts: the tokens of an expired record expire with it.
    return Stored(None, "", 0, writers) if deleted and writers else None


def wrong_type(side: bytes | None = None) -> RecordUnreadable:
    """Return the error for a Redis key that is a list, a hash or another type. `side` is its side key, if read."""
    error = RecordUnreadable(_WRONG_TYPE)
    with contextlib.suppress(RecordUnreadable):
        _, error.writers = _parse_writers(side)
    return error


def pack_writers(writers: Writers, *, deleted: bool) -> bytes:
    """Return the bytes of a side key."""
    return msgspec.json.encode([0 if deleted else 1, *writers])


def _value(raw: bytes) -> bytes:
    if raw[-_SUFFIX_LENGTH - 1 : -_RANDOM_LENGTH] == _VALUE_END and raw[:1] == b"{":
        return raw[:-_SUFFIX_LENGTH]
    try:
        return encode(parse(raw))
    except TooLarge as error:
        raise RecordUnreadable(f"another tool wrote the record: {error.detail}") from None
    except TableError:
        raise RecordUnreadable(_NOT_AN_OBJECT) from None


def _parse_writers(side: bytes | None) -> tuple[bool, Writers]:
    if not side:
        return False, ()
    try:
        deleted, *writers = msgspec.json.decode(side)
        return deleted == 0, tuple(_checked_writer(*writer) for writer in writers)
    except (msgspec.DecodeError, TypeError, ValueError):
        raise RecordUnreadable(_INVALID_WRITERS) from None


def _checked_writer(name: Any, sequence: Any) -> tuple[str, int]:
    if type(name) is not str or type(sequence) is not int:
        raise ValueError
    return name, sequence
