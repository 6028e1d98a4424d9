"""Decode pages of a scan into Arrow batches of a schema, without a Python object per row."""

import json
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DecimalType,
    MapType,
    NullType,
    StructType,
)

from tableside_spark.datasource.columns import Columns
from tableside_spark.datasource.decimals import cast
from tableside_spark.datasource.options import TableOptions
from tableside_spark.executor.json_members import UnreadableMembersError, read_members
from tableside_spark.executor.mismatch import MESSAGE, MismatchError, OnMismatch
from tableside_spark.plan.table_schema import PARTITION_COLUMN
from tableside_spark.versions import VariantType, arrow_schema

_MISFITS = (UnreadableMembersError, pa.ArrowInvalid)
_JSON_TYPES = {str: "string", bool: "boolean", int: "number", float: "number", dict: "object", list: "array"}


@dataclass(frozen=True)
class Decoder:
    """Converts a page to the columns of a schema: key columns, `partition` if the table is partitioned, and members."""

    table: str
    target: pa.Schema
    read: pa.Schema
    types: dict[str, str]
    columns: Columns
    on_mismatch: OnMismatch = "fail"

    @classmethod
    def from_schema(cls, schema: StructType, target: TableOptions, on_mismatch: OnMismatch) -> Self:
        """Create a decoder. Raises `ValueError` for a missing column, and for types that JSON cannot represent."""
        columns = Columns.from_schema(schema, target)
        for field in columns.members:
            _require_readable(field.name, field.dataType)
        kinds = arrow_schema(schema)
        read = pa.schema([(field.name, _json_type(kinds.field(field.name).type)) for field in columns.members])
        types = {field.name: field.dataType.simpleString() for field in columns.members}
        return cls(target.table, kinds, read, types, columns, on_mismatch)

    def decode(self, page: pa.Table) -> pa.RecordBatch:
        """Decode a page as one batch. Raises `MismatchError` for a value that does not fit."""
        columns = dict(zip(self.columns.keys, _key_columns(page["key"].combine_chunks()), strict=True))
        if self.columns.partition is not None:
            columns[self.columns.partition] = page[PARTITION_COLUMN].combine_chunks()
        if self.columns.text is not None:
            columns[self.columns.text] = page["value"].combine_chunks()
        if len(self.read):
            columns |= self._members(page)
        arrays = [self._cast(columns[field.name], field) for field in self.target]
        for array, field in zip(arrays, self.target, strict=True):
            if _lacks_value(array, field):
                self._reject_null(page, array, field)
        return pa.RecordBatch.from_arrays(arrays, schema=self.target)

    def _cast(self, column: pa.Array, field: pa.Field) -> pa.Array:
        """Cast a column to the type of the schema. Members have this type already, so only a key may not fit."""
        try:
            return cast(column, field.type)
        except pa.ArrowInvalid as error:
            raise MismatchError(
                f"table {self.table}: a key does not fit the column {field.name} of type {field.type}: "
                "change the type in the schema"
            ) from error

    def _members(self, page: pa.Table) -> dict[str, pa.Array]:
        try:
            return self._read(page["value"], self.read)
        except _MISFITS:
            return {field.name: self._member(page, field) for field in self.read}

    def _member(self, page: pa.Table, field: pa.Field) -> pa.Array:
        """Read one member. Values that do not fit are found by halving the page."""
        try:
            return self._read(page["value"], pa.schema([field]))[field.name]
        except _MISFITS:
            if len(page) == 1:
                return self._misfit(page, field.name)
        half = len(page) // 2
        return pa.concat_arrays([self._member(page.slice(0, half), field), self._member(page.slice(half), field)])

    def _misfit(self, page: pa.Table, name: str) -> pa.Array:
        if self.on_mismatch == "null":
            return pa.nulls(1, self.target.field(name).type)
        found = _JSON_TYPES.get(type(json.loads(page["value"][0].as_py()).get(name)), "value")
        key = _key_text(page["key"][0].as_py())
        raise MismatchError(MESSAGE % (self.table, name, found, key, self.types[name]))

    def _reject_null(self, page: pa.Table, array: pa.Array, field: pa.Field) -> None:
        """Raise `MismatchError` for the first null that the schema excludes: Spark would read another value."""
        at = next(at for at in range(len(array)) if _lacks_value(array.slice(at, 1), field))
        raise MismatchError(
            f"table {self.table}: column {field.name} has a null for key {_key_text(page['key'][at].as_py())}, "
            "but the schema excludes nulls; remove NOT NULL from the schema"
        )

    def _read(self, values: pa.ChunkedArray, read: pa.Schema) -> dict[str, pa.Array]:
        """Read members of all values. Raises one of `_MISFITS` if one of them does not fit."""
        members = read_members(values.combine_chunks(), read)
        return {
            name: cast(member, self.target.field(name).type) for name, member in zip(read.names, members, strict=True)
        }


def _lacks_value(column: pa.Array, field: pa.Field) -> bool:
    """Whether the column has, at any depth, a null where the field excludes nulls."""
    if column.null_count and not field.nullable:
        return True
    if pa.types.is_struct(field.type):
        return any(map(_lacks_value, column.drop_null().flatten(), field.type))
    if pa.types.is_list(field.type):
        return _lacks_value(column.flatten(), field.type.value_field)
    return False


def _key_text(key: Any) -> str:
    """Return a key as a lookup's error shows it: JSON, with all parts as strings."""
    parts = [str(part) for part in key.values()] if isinstance(key, dict) else str(key)
    return json.dumps(parts, ensure_ascii=False, separators=(",", ":"))


def _key_columns(keys: pa.Array) -> list[pa.Array]:
    return keys.flatten() if pa.types.is_struct(keys.type) else [keys]


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
