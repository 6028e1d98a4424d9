"""Key columns in Arrow: one key column per request, and each distinct key once."""

from collections.abc import Sequence
from dataclasses import dataclass

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
    """Return the distinct keys: the column itself for a simple key, structs with `names` for a composite key.

    A row with a null in any key column has no key.
    """
    encoded = [_wire_type(column).dictionary_encode() for column in columns]
    if len(encoded) == 1:
        return _distinct_keys(encoded[0].dictionary, encoded[0].indices)
    codes = _combined_codes(encoded).dictionary_encode()
    return _distinct_keys(_structs(codes.dictionary, encoded, names), codes.indices)


def key_column(columns: Sequence[pa.Array], names: Sequence[str]) -> pa.Array:
    """Return the key of every row, in the type of the request."""
    parts = [_wire_type(column) for column in columns]
    return parts[0] if len(parts) == 1 else pa.StructArray.from_arrays(parts, names=list(names))


def _distinct_keys(keys: pa.Array, positions: pa.Array) -> DistinctKeys:
    return DistinctKeys(keys, positions, len(keys) == len(positions))


def _wire_type(column: pa.Array) -> pa.Array:
    return column.cast(pa.int64()) if pa.types.is_integer(column.type) else column


def _combined_codes(encoded: Sequence[pa.DictionaryArray]) -> pa.Array:
    """One integer per row for its combination of parts: positional notation with the dictionaries' sizes as bases."""
    codes = encoded[0].indices.cast(pa.int64())
    for part in encoded[1:]:
        codes = pc.add(pc.multiply(codes, max(len(part.dictionary), 1)), part.indices.cast(pa.int64()))
    return codes


def _structs(codes: pa.Array, encoded: Sequence[pa.DictionaryArray], names: Sequence[str]) -> pa.Array:
    parts: list[pa.Array] = []
    for part in reversed(encoded):
        base = max(len(part.dictionary), 1)
        rest = pc.divide(codes, base)
        parts.append(part.dictionary.take(pc.subtract(codes, pc.multiply(rest, base))))
        codes = rest
    return pa.StructArray.from_arrays(parts[::-1], names=list(names))
