"""Plan the join of a DataFrame with a table."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere
from pyspark.sql.types import StringType, StructField, StructType

from tableside_client.connection import Connection
from tableside_client.paths import joined
from tableside_spark.executor.chunks import ChunkSize
from tableside_spark.executor.found_values import VALUE_COLUMN, FoundValues, member_column
from tableside_spark.executor.lookup_task import LookupTask
from tableside_spark.executor.mismatch import OnMismatch, require_known
from tableside_spark.plan.concurrency import divide_in_flight
from tableside_spark.plan.decodable import arrow_members
from tableside_spark.plan.frames import (
    check_key_columns,
    map_arrow,
    quoted_name,
    require_free_names,
    require_unique_names,
    type_of,
    with_strings,
)
from tableside_spark.plan.routing import TableRouting
from tableside_spark.plan.table_schema import TableSchema, fetch_table_schema, wire_keys
from tableside_spark.plan.typed_values import TypedValue

HOW = {
    "left": "left",
    "leftouter": "left",
    "inner": "inner",
    "leftsemi": "left_semi",
    "semi": "left_semi",
    "leftanti": "left_anti",
    "anti": "left_anti",
}
"""The kind of join by its names in Spark, in lower case and without underscores."""

_WITHOUT_MEMBERS = ("left_semi", "left_anti")
_PARSED = "__tableside_parsed"
_MISFIT = "__tableside_misfit_column"
_FIT = "__tableside_fit"
_MEMBER = "__tableside_parsed_member_"
_NEED_ALL_RECORDS = ("right", "rightouter", "full", "fullouter", "outer", "cross")

Schema = str | StructType | None


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """The arguments of a join."""

    on: str | Sequence[str]
    schema: Schema
    how: str
    on_mismatch: OnMismatch
    fields: Sequence[str] | None
    partitions: Any = None


def join(
    connection: Connection, table: str, frame: DataFrame, request: JoinRequest, in_flight_max: int, size: ChunkSize
) -> DataFrame:
    """Return the DataFrame with the members of each row's value, or the rows that `how` keeps (semi and anti joins)."""
    how = join_type(request.how)
    require_known(request.on_mismatch)
    joined(request.fields)  # raises for names that a request cannot contain
    frame = with_strings(frame)
    columns = check_key_columns(frame, request.on)
    require_unique_names(frame.columns, frame)
    require_free_names(frame.columns)
    value = None if how in _WITHOUT_MEMBERS else _typed_value(frame, table, columns, request)
    table_schema = fetch_table_schema(connection, table, must_exist=True)
    ordered, names = wire_keys(table_schema, columns)
    routed = frame
    if request.partitions is not None:
        routed = TableRouting(table, table_schema, columns, request.partitions).with_one_partition(frame)
    source, divided = divide_in_flight(routed, table_schema.limits, in_flight_max, size)
    fields = None if request.fields is None else tuple(request.fields)
    values = FoundValues(None if value is None else arrow_members(value.schema))
    absent = _absent_codes(frame, ordered, table_schema)
    lookup = LookupTask(connection, table, ordered, names, how, fields, values, divided.chunk, divided.window, absent)
    if how in _WITHOUT_MEMBERS:
        return map_arrow(source, lookup, frame.schema)
    decoded = [] if value is None or values.members is None else _decoded_fields(value.schema)
    text = StructField(VALUE_COLUMN, StringType())
    numbered = [
        StructField(_numbered(at), field.dataType, field.nullable, field.metadata)
        for at, field in enumerate(frame.schema.fields)
    ]
    found = map_arrow(source, lookup, StructType([*numbered, *decoded, text]))
    return _with_members(found, frame.columns, value, [field.name for field in decoded], request.on_mismatch)


def _absent_codes(frame: DataFrame, columns: Sequence[str], table_schema: TableSchema) -> tuple[str, ...]:
    """Return the codes of lookups without a record.

    If the columns have the types of the key, a key is invalid only if no record can have it, such as an empty text.
    """
    kinds = ["string" if isinstance(type_of(frame, name), StringType) else "integer" for name in columns]
    return ("record_not_found", *(["invalid_operation"] if kinds == list(table_schema.key_types) else []))


def join_type(how: str) -> str:
    """Return `left`, `inner`, `left_semi` or `left_anti` for any of its names in Spark.

    Raises `ValueError` for the other kinds of join: they need all records of the table.
    """
    name = how.lower().replace("_", "")
    if name in HOW:
        return HOW[name]
    if name in _NEED_ALL_RECORDS:
        raise ValueError(
            f"how={how!r} returns records whose key is in no row of the frame, but a lookup reads only the keys of "
            'the frame: read the whole table with spark.read.format("tableside"), and join it with DataFrame.join'
        )
    raise ValueError(f"how is left, inner, left_semi or left_anti (also left_outer, semi or anti), not {how!r}")


def _typed_value(frame: DataFrame, table: str, keys: Sequence[str], request: JoinRequest) -> TypedValue | None:
    """Return how values are read, or None without a schema: they are then the column `value`."""
    if request.schema is None:
        require_unique_names([*frame.columns, "value"], frame)
        return None
    kind = type_of(frame.select(F.from_json(F.lit("{}"), request.schema).alias(VALUE_COLUMN)), VALUE_COLUMN)
    if not isinstance(kind, StructType):
        raise ValueError(f"a value is an object: its schema is a struct, not {kind.simpleString()}")
    if not kind.names:
        raise ValueError("the schema has no column; without a schema, the join adds the column `value` with JSON text")
    require_unique_names([*frame.columns, *kind.names], frame)
    require_free_names(kind.names)
    return TypedValue(kind, table, [_numbered(frame.columns.index(key)) for key in keys])


def _numbered(position: int) -> str:
    """Return the name of a column of the frame in expressions in SQL.

    Spark substitutes variables in SQL, and may read names in backticks as regular expressions.
    """
    return f"__tableside_column_{position}"


def _decoded_fields(schema: StructType) -> list[StructField]:
    return [StructField(member_column(position), field.dataType) for position, field in enumerate(schema.fields)]


def _with_members(
    found: DataFrame,
    columns: Sequence[str],
    value: TypedValue | None,
    decoded: Sequence[str],
    on_mismatch: OnMismatch,
) -> DataFrame:
    """Return the columns of the frame, and the members: decoded by the executor, or from the text if there is one."""
    if value is None:
        return found.toDF(*columns, "value")
    read, parsed = found.select("*", value.parse(F.col(VALUE_COLUMN)).alias(_PARSED)), _PARSED
    if on_mismatch == "fail":
        read = read.select("*", value.misfit(_PARSED).alias(_MISFIT))
        read, parsed = read.select("*", value.require_fit(_PARSED, _MISFIT).alias(_FIT)), _FIT
    names = value.schema.names
    members = [f"{_MEMBER}{at}" for at in range(len(names))]
    read = read.select(
        "*",
        *(F.col(f"{parsed}.{quoted_name(name)}").alias(member) for name, member in zip(names, members, strict=True)),
    )
    if decoded:
        pairs = zip(decoded, members, strict=True)
        members = [f"CASE WHEN {VALUE_COLUMN} IS NULL THEN {own} ELSE {member} END" for own, member in pairs]
    return read.selectExpr(*map(_numbered, range(len(columns))), *members).toDF(*columns, *names)
