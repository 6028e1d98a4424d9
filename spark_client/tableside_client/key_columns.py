"""Columns of requests in Arrow: keys, each distinct key once, texts that are not valid UTF-8, and orders."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True, slots=True)
class DistinctKeys:
    """The distinct keys of a chunk, and the position of each row's key among them (null for a row without a key)."""

    keys: pa.Array
    positions: pa.Array
    is_identity: bool
    """True if every row has a key and all keys differ: positions are then 0, 1, 2, …"""


def distinct_keys(columns: Sequence[pa.Array], names: Sequence[str]) -> DistinctKeys:
    """Return the distinct keys, as structs if composite. A row with a null in a key column has no key."""
    encoded = [_wire_type(column).dictionary_encode() for column in columns]
    is_simple = len(encoded) == 1
    keys, positions = (encoded[0].dictionary, encoded[0].indices) if is_simple else _distinct_structs(encoded, names)
    return DistinctKeys(keys, positions, len(keys) == len(positions))


def key_column(columns: Sequence[pa.Array], names: Sequence[str]) -> pa.Array:
    """Return the key of every row, in the type of the request."""
    parts = [_wire_type(column) for column in columns]
    return parts[0] if len(parts) == 1 else pa.StructArray.from_arrays(parts, names=list(names))


def _wire_type(column: pa.Array) -> pa.Array:
    return column.cast(pa.int64()) if pa.types.is_integer(column.type) else column


def _distinct_structs(encoded: Sequence[pa.DictionaryArray], names: Sequence[str]) -> tuple[pa.Array, pa.Array]:
    """Return the distinct combinations of parts, and the position of each row's combination among them.

    Each part turns positions into codes, and encodes these again, so that a code is less than the square of the rows.
    """
    known, positions = [encoded[0].dictionary], encoded[0].indices
    for part in encoded[1:]:
        base = max(len(part.dictionary), 1)
        codes = pc.add(pc.multiply(positions.cast(pa.int64()), base), part.indices.cast(pa.int64())).dictionary_encode()
        before = pc.divide(codes.dictionary, base)
        own = pc.subtract(codes.dictionary, pc.multiply(before, base))
        known = [*(values.take(before) for values in known), part.dictionary.take(own)]
        positions = codes.indices
    return pa.StructArray.from_arrays(known, names=list(names)), positions


def invalid_utf8(column: pa.Array | pa.ChunkedArray) -> pa.Array | None:
    """Return a mask of the texts that are not valid UTF-8, or None if there are none."""
    if not _is_text(column.type):
        return None
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return pa.array(map(_is_invalid, comparable(column)), pa.bool_())
    return None


def without_invalid_texts(column: pa.Array) -> pa.Array:
    """Return a key column with null in place of texts that are not valid UTF-8: no record has such a key."""
    invalid = invalid_utf8(column)
    return column if invalid is None else pc.if_else(invalid, pa.scalar(None, column.type), column)


def comparable(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return a column as Python values that can be compared. Texts are bytes, because they may be invalid."""
    values: list[Any] = (column.cast(pa.large_binary()) if _is_text(column.type) else column).to_pylist()
    return values


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_invalid(text: bytes | None) -> bool:
    try:
        (text or b"").decode()
    except UnicodeDecodeError:
        return True
    return False


DAY_US = 86_400_000_000


def orders(sequence: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return integers, and dates and timestamps as microseconds since 1970. Raises `pa.ArrowInvalid` beyond 64 bits."""
    if pa.types.is_date(sequence.type):
        return pc.multiply_checked(sequence.cast(pa.int32()).cast(pa.int64()), DAY_US)
    return sequence.cast(pa.int64())
