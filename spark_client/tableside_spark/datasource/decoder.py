"""Decode pages of a scan into Arrow batches of a schema."""

from dataclasses import dataclass
from typing import Self

import pyarrow as pa
from pyspark.sql.types import StructType

from tableside_spark.datasource.columns import Columns
from tableside_spark.datasource.options import TableOptions
from tableside_spark.executor.json_reader import JsonReader
from tableside_spark.executor.mismatch import MismatchError, OnMismatch, key_text, mismatch
from tableside_spark.plan.table_schema import PARTITION_COLUMN
from tableside_spark.versions import arrow_schema


@dataclass(frozen=True)
class Decoder:
    """Converts a page to the columns of a schema: key columns, `partition` if the table is partitioned, and members."""

    table: str
    target: pa.Schema
    columns: Columns
    reader: JsonReader
    on_mismatch: OnMismatch

    @classmethod
    def from_schema(cls, schema: StructType, target: TableOptions, on_mismatch: OnMismatch) -> Self:
        """Create a decoder. Raises `ValueError` for a missing column, and for types that JSON cannot represent."""
        columns = Columns.from_schema(schema, target)
        reader = JsonReader.from_fields(columns.members)
        return cls(target.table, arrow_schema(schema), columns, reader, on_mismatch)

    def decode(self, page: pa.Table) -> pa.RecordBatch:
        """Decode a page as one batch. Raises `MismatchError` for a value that does not fit."""
        columns = dict(zip(self.columns.keys, _key_columns(page["key"].combine_chunks()), strict=True))
        if self.columns.partition is not None:
            columns[self.columns.partition] = page[PARTITION_COLUMN].combine_chunks()
        if self.columns.text is not None:
            columns[self.columns.text] = page["value"].combine_chunks()
        columns = {name: self._cast(column, self.target.field(name)) for name, column in columns.items()}
        if self.columns.members:
            columns |= self._members(page)
        arrays = [columns[name] for name in self.target.names]
        for array, field in zip(arrays, self.target, strict=True):
            if _lacks_value(array, field):
                self._reject_null(page, array, field)
        return pa.RecordBatch.from_arrays(arrays, schema=self.target)

    def _cast(self, column: pa.Array, field: pa.Field) -> pa.Array:
        try:
            return column.cast(field.type)
        except pa.ArrowInvalid as error:
            raise MismatchError(
                f"table {self.table}: a key does not fit the column {field.name} of type {field.type}: "
                "change the type in the schema"
            ) from error

    def _members(self, page: pa.Table) -> dict[str, pa.Array]:
        names = self.reader.schema.names
        members, misfits = self.reader.read(page["value"].combine_chunks())
        if misfits and self.on_mismatch == "fail":
            row, at, json_type = misfits[0]
            key = page["key"][row].as_py()
            raise MismatchError(mismatch(self.table, names[at], json_type, key, self.reader.types[at]))
        return dict(zip(names, members, strict=True))

    def _reject_null(self, page: pa.Table, array: pa.Array, field: pa.Field) -> None:
        """Raise `MismatchError` for the first null that the schema excludes: Spark would read another value."""
        at = next(at for at in range(len(array)) if _lacks_value(array.slice(at, 1), field))
        raise MismatchError(
            f"table {self.table}: column {field.name} has a null for key {key_text(page['key'][at].as_py())}, "
            "but the schema excludes nulls; remove NOT NULL from the schema"
        )


def _lacks_value(column: pa.Array, field: pa.Field) -> bool:
    """Whether the column has, at any depth, a null where the field excludes nulls."""
    if column.null_count and not field.nullable:
        return True
    if pa.types.is_struct(field.type):
        return any(map(_lacks_value, column.drop_null().flatten(), field.type))
    if pa.types.is_map(field.type):
        items = pa.struct([field.type.key_field, field.type.item_field])
        return _lacks_value(column.cast(pa.list_(items)).flatten().field(1), field.type.item_field)
    if pa.types.is_list(field.type):
        return _lacks_value(column.flatten(), field.type.value_field)
    return False


def _key_columns(keys: pa.Array) -> list[pa.Array]:
    return keys.flatten() if pa.types.is_struct(keys.type) else [keys]
