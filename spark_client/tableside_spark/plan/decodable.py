"""Schemas whose values an executor decodes with Arrow exactly as Spark's `from_json` does."""

import pyarrow as pa
from pyspark.sql.types import ArrayType, DataType, StructType

_SCALARS = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
}
"""Types by their name in Spark. For any other, Arrow and Spark accept different JSON or return different values."""


def arrow_members(schema: StructType) -> pa.Schema | None:
    """Return the schema for Arrow, or None if it has another type, repeated names, metadata, or no members."""
    kind = _arrow_type(schema)
    return None if kind is None else pa.schema(list(kind))


def _arrow_type(kind: DataType) -> pa.DataType | None:
    match kind:
        case StructType():
            return _arrow_struct(kind)
        case ArrayType():
            element = _arrow_type(kind.elementType)
            return None if element is None else pa.list_(element)
    return _SCALARS.get(kind.simpleString())


def _arrow_struct(kind: StructType) -> pa.DataType | None:
    """Return the type of a struct. Metadata of a member, such as a default, can change how Spark reads it."""
    members = [(member.name, _arrow_type(member.dataType)) for member in kind.fields]
    names = {name for name, _ in members}
    is_plain = names and len(names) == len(members) and not any(member.metadata for member in kind.fields)
    return pa.struct(members) if is_plain and all(kind is not None for _, kind in members) else None
