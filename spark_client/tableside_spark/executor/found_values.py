"""The columns that a lookup adds to its rows, read from JSON values with a schema of Spark."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructField, StructType

from tableside_client.json_reader import JsonReader, OnMismatch, mismatch, unreadable
from tableside_spark.versions import arrow_schema, parse_variant


def json_reader(fields: Sequence[StructField]) -> JsonReader:
    """Return a reader of members. Raises `ValueError` for a type that cannot be read from JSON. It names the column."""
    types = tuple(field.dataType.simpleString() for field in fields)
    return JsonReader(pa.schema(list(map(_arrow_field, fields))), types, parse_variant)


def _arrow_field(field: StructField) -> pa.Field:
    try:
        [found] = arrow_schema(StructType([field]))
    except TypeError as error:
        raise unreadable(field.name, field.dataType.simpleString()) from error
    return found


FOUND_COLUMN = "__tableside_found"
"""True if the key has a record, otherwise false or null."""
VALUE_COLUMN = "__tableside_value"
"""The JSON text of a value, without a schema."""
MISMATCH_COLUMN = "__tableside_mismatch"
"""The message for the first member that does not fit the schema, or null."""

_FOUND = pa.field(FOUND_COLUMN, pa.bool_())


def member_column(position: int) -> str:
    """Return the name of the column of a member."""
    return f"__tableside_member_{position}"


@dataclass(frozen=True, slots=True)
class FoundValues:
    """Makes columns of the JSON texts that a lookup returns.

    Without a reader of members, they are `FOUND_COLUMN` and `VALUE_COLUMN`. With a reader, they are `FOUND_COLUMN`, the
    members, and `MISMATCH_COLUMN`.
    """

    table: str
    reader: JsonReader | None
    on_mismatch: OnMismatch

    @property
    def names(self) -> list[str]:
        """The names of the members."""
        return [] if self.reader is None else list(self.reader.schema.names)

    @property
    def schema(self) -> pa.Schema:
        """The columns of `decode`."""
        if self.reader is None:
            return pa.schema([_FOUND, (VALUE_COLUMN, pa.string())])
        members = [field.with_name(member_column(at)) for at, field in enumerate(self.reader.schema)]
        return pa.schema([_FOUND, *members, (MISMATCH_COLUMN, pa.string())])

    def decode(self, keys: pa.Array, texts: pa.Array) -> pa.RecordBatch:
        """Return the columns for keys and their texts, which are null for keys without a record."""
        if self.reader is None:
            return pa.RecordBatch.from_arrays([pc.is_valid(texts), texts], schema=self.schema)
        members, misfits = self.reader.read(texts)
        messages: list[str | None] = [None] * len(texts)
        for row, at, found in reversed(misfits if self.on_mismatch == "fail" else []):
            key = keys[row].as_py()
            messages[row] = mismatch(self.table, self.names[at], found, key, self.reader.types[at])
        columns = [pc.is_valid(texts), *members, pa.array(messages, pa.string())]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)
