"""Rows as Parquet."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from .record_rows import Row, json_text, values_of

ROWS_PER_GROUP = 10_000


def write_parquet(columns: Sequence[str], rows: Iterable[Row], path: Path) -> None:
    """Write rows, which are read three times. A column has the type of all its values.

    A column is JSON text if its values have different types, or a type that Parquet does not have.
    """
    types = dict.fromkeys(columns, pa.null())
    for chunk in _chunks(rows):
        types = {column: _common_type(types[column], values_of(chunk, column)) for column in columns}
    for chunk in _chunks(rows):
        types = {column: _exact_type(types[column], values_of(chunk, column)) for column in columns}
    schema = pa.schema([(column, kind or pa.string()) for column, kind in types.items()])
    with pyarrow.parquet.ParquetWriter(path, schema) as writer:
        for chunk in _chunks(rows):
            arrays = [_array(types[column], values_of(chunk, column)) for column in columns]
            writer.write_table(pa.table(arrays, schema=schema))


def _chunks(rows: Iterable[Row]) -> Iterator[list[Row]]:
    iterator = iter(rows)
    while chunk := list(islice(iterator, ROWS_PER_GROUP)):
        yield chunk


def _common_type(found: pa.DataType | None, values: list[Any]) -> pa.DataType | None:
    """Return the type of the values found so far and of these values, None if there is none."""
    if found is None:
        return None
    try:
        schemas = [pa.schema([("", kind)]) for kind in (found, pa.array(values).type)]
        return pa.unify_schemas(schemas, promote_options="permissive").field(0).type
    except pa.ArrowException:
        return None


def _exact_type(kind: pa.DataType | None, values: list[Any]) -> pa.DataType | None:
    """Return the type if it represents all values exactly, else None.

    A double does not represent all integers, and a struct does not distinguish null and absent members.
    """
    if kind is None or _has_empty_struct(kind):
        return None
    try:
        array = pa.array(values, kind)
    except pa.ArrowException:
        return None
    return kind if not pa.types.is_nested(kind) or array.to_pylist() == values else None


def _has_empty_struct(kind: pa.DataType) -> bool:
    """Return whether a type contains a struct without members, which Parquet does not have."""
    if pa.types.is_struct(kind):
        return kind.num_fields == 0 or any(_has_empty_struct(field.type) for field in kind)
    return pa.types.is_list(kind) and _has_empty_struct(kind.value_type)


def _array(kind: pa.DataType | None, values: list[Any]) -> pa.Array:
    if kind is not None:
        return pa.array(values, kind)
    return pa.array([None if value is None else json_text(value) for value in values], pa.string())
