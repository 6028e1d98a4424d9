"""The keys of an Arrow batch as Python objects. A text that is too long for a key is never converted."""

from typing import Any

import pyarrow as pa

from ...core import MalformedRequest, TableSpec
from ...core.keys import STRING_BYTES_MAX
from .arrow_limits import text_lengths

CHECKED_BYTES_MIN = 2**16
"""The size of a column whose texts are measured before they are converted."""

_TOO_LONG = "x" * (STRING_BYTES_MAX + 1)
"""Replaces each text that is too long for a key. It causes the same error."""


def decode_keys(column: pa.ChunkedArray, spec: TableSpec) -> list[Any]:
    """Return the keys as in JSON.

    Raise MalformedRequest if they have two parts of the same name, or would go by order although a part has the name of
    another one.
    """
    if not pa.types.is_struct(column.type):
        return _cells(column)
    names = [field.name for field in column.type]
    wanted = [field.name or "" for field in spec.key.fields]
    if len(set(names)) != len(names):
        raise MalformedRequest("a part of the key occurs twice")
    # If the table names the parts of its key, match them by name, otherwise by order.
    by_name = set(names) == set(wanted)
    if not by_name and any(name.casefold() in _others(wanted, index) for index, name in enumerate(names)):
        raise MalformedRequest(f"the parts of the key must have the table's names: {', '.join(wanted)}")
    order = wanted if by_name else names
    return [None if key is None else tuple(key[name] for name in order) for key in _cells(column)]


def _others(names: list[str], index: int) -> list[str]:
    return [name.casefold() for name in (*names[:index], *names[index + 1 :])]


def _cells(column: pa.ChunkedArray) -> list[Any]:
    if column.nbytes < CHECKED_BYTES_MIN:
        return list(column.to_pylist())
    return [cell for chunk in column.chunks for cell in _checked_cells(chunk)]


def _checked_cells(column: pa.Array) -> list[Any]:
    if pa.types.is_struct(column.type):
        names = [field.name for field in column.type]
        parts = zip(*[_checked_cells(column.field(index)) for index in range(len(names))], strict=True)
        present = column.is_valid().to_pylist()
        return [
            dict(zip(names, row, strict=True)) if there else None for row, there in zip(parts, present, strict=True)
        ]
    if (lengths := text_lengths(column)) is None:
        return list(column.to_pylist())
    sizes = lengths.fill_null(0).to_pylist()
    return [_TOO_LONG if size > STRING_BYTES_MAX else cell.as_py() for cell, size in zip(column, sizes, strict=True)]
