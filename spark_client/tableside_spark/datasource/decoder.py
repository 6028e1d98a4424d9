"""Decode pages of a scan into Arrow batches of a schema, without a Python object per row."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DecimalType,
    MapType,
    NullType,
    StructType,
    VariantType,
)

_VALUE_COLUMN = "value"


@dataclass(frozen=True)
class Decoder:
    """Converts a page to the key columns and the members of the value, in the order of the schema."""

    target: pa.Schema
    read: pa.Schema
    keys: tuple[str, ...]
    text: bool
    """True if the only column besides the key is `value`, the JSON text."""

    @classmethod
    def from_schema(cls, schema: StructType, keys: Sequence[str]) -> Self:
        """Create a decoder. Raises `ValueError` for types that Arrow cannot read from JSON."""
        target = to_arrow_schema(schema, timezone="UTC")
        members = [field for field in schema.fields if field.name not in keys]
        text = [field.name for field in members] == [_VALUE_COLUMN] and pa.types.is_string(
            target.field(_VALUE_COLUMN).type
        )
        if not text:
            for field in members:
                _require_readable(field.name, field.dataType)
        read = pa.schema([(field.name, _json_type(target.field(field.name).type)) for field in members])
        return cls(target, read, tuple(keys), text)

    def decode(self, page: pa.Table) -> pa.RecordBatch:
        """Decode a page as one batch."""
        columns = dict(zip(self.keys, _key_columns(page["key"].combine_chunks()), strict=True))
        if self.text:
            columns[_VALUE_COLUMN] = page["value"].combine_chunks()
        elif len(self.read):
            columns |= self._members(page["value"])
        arrays = [_cast(columns[field.name], field.type) for field in self.target]
        return pa.RecordBatch.from_arrays(arrays, schema=self.target)

    def _members(self, values: pa.ChunkedArray) -> dict[str, pa.Array]:
        lines = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values.combine_chunks())
        text = pc.binary_join(lines, b"\n")[0].as_buffer()
        options = pj.ParseOptions(
            explicit_schema=self.read, newlines_in_values=True, unexpected_field_behavior="ignore"
        )
        reading = pj.ReadOptions(use_threads=False, block_size=max(text.size + 1, 1024))
        table = pj.read_json(io.BytesIO(text), read_options=reading, parse_options=options)
        return {name: table[name].combine_chunks() for name in table.column_names}


def _key_columns(keys: pa.Array) -> list[pa.Array]:
    return keys.flatten() if pa.types.is_struct(keys.type) else [keys]


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return column if column.type == kind else pc.cast(column, kind)


def _json_type(kind: pa.DataType) -> Any:
    """Return the type to read from JSON before the cast: text for times, doubles for decimals."""
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return pa.string()
    if pa.types.is_decimal(kind):
        return pa.float64()
    if pa.types.is_struct(kind):
        return pa.struct([(member.name, _json_type(member.type)) for member in kind])
    if pa.types.is_list(kind):
        return pa.list_(_json_type(kind.value_type))
    return kind


def _require_readable(name: str, kind: DataType) -> None:
    if isinstance(kind, MapType | BinaryType | VariantType | NullType) or (
        isinstance(kind, DecimalType) and kind.precision > 15
    ):
        raise ValueError(
            f"column {name} is {kind.simpleString()}, which this data source cannot read: "
            "read without a schema, and use from_json on the column value"
        )
    if isinstance(kind, ArrayType):
        _require_readable(f"{name}[]", kind.elementType)
    if isinstance(kind, StructType):
        for member in kind.fields:
            _require_readable(f"{name}.{member.name}", member.dataType)
