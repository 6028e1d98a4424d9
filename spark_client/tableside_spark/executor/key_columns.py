"""Key columns on the executor, in Arrow: one column for the wire, each key once. Knows no Spark."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True, slots=True)
class DistinctKeys:
    """The distinct keys of a chunk, and for each row the position of its key, or null where it has none."""

    keys: pa.Array
    positions: pa.Array
    each_once: bool
    """Every row has a key and no two the same: positions are 0, 1, 2, …"""


def distinct_keys(columns: Sequence[pa.Array], names: Sequence[str]) -> DistinctKeys:
    """The distinct keys in `columns`: the column itself for one, a struct with `names` for several.

    A row with a null in any key column has no key.
    """
    encoded = [_wire_type(column).dictionary_encode() for column in columns]
    if len(encoded) == 1:
        return _distinct_keys(encoded[0].dictionary, encoded[0].indices)
    codes = _combined_codes(encoded).dictionary_encode()
    return _distinct_keys(_structs(codes.dictionary, encoded, names), codes.indices)


def key_column(columns: Sequence[pa.Array], names: Sequence[str]) -> pa.Array:
    """The key of every row, for the wire."""
    parts = [_wire_type(column) for column in columns]
    return parts[0] if len(parts) == 1 else pa.StructArray.from_arrays(parts, names=list(names))


def _distinct_keys(keys: pa.Array, positions: pa.Array) -> DistinctKeys:
    return DistinctKeys(keys, positions, len(keys) == len(positions))


def _wire_type(column: pa.Array) -> pa.Array:
    return column.cast(pa.int64()) if pa.types.is_integer(column.type) else column


def _combined_codes(encoded: Sequence[pa.DictionaryArray]) -> pa.Array:
    """One number per row for its combination of parts: positional notation with the parts' counts as bases."""
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
