"""A frame joined with a table: the plan, made on the driver."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere
from pyspark.sql.types import StringType, StructField, StructType

from tableside_client.connection import Connection
from tableside_spark.executor.chunks import ChunkSize
from tableside_spark.executor.lookup_task import VALUE_COLUMN, LookupTask
from tableside_spark.plan.frames import check_key_columns, divide_in_flight, map_arrow, quoted, require_unique_names
from tableside_spark.plan.routing import TableRouting
from tableside_spark.plan.table_schema import TableSchema, fetch_table_schema, wire_keys

HOW = ("left", "inner", "left_semi", "left_anti")
_MODES = {"fail": "FAILFAST", "null": "PERMISSIVE"}

Schema = str | StructType | None


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """A join as the caller asked for it."""

    on: str | Sequence[str]
    schema: Schema
    how: str
    on_mismatch: Literal["fail", "null"]
    fields: Sequence[str] | None
    partitions: Any = None


def join(
    connection: Connection, table: str, frame: DataFrame, joining: JoinRequest, in_flight_max: int, size: ChunkSize
) -> DataFrame:
    """The frame with the value's members beside its columns, or only those of its rows that `how` keeps."""
    if joining.how not in HOW:
        raise ValueError(f"how is one of {', '.join(HOW)}, not {joining.how!r}")
    if joining.on_mismatch not in _MODES:
        raise ValueError(f"on_mismatch is fail or null, not {joining.on_mismatch!r}")
    require_unique_names(frame.columns, frame)
    columns = check_key_columns(frame, joining.on)
    known = len(columns) > 1 or joining.partitions is not None
    facts = fetch_table_schema(connection, table) if known else TableSchema()
    ordered, names = wire_keys(facts, columns)
    asked = frame
    if joining.partitions is not None:
        asked = TableRouting(table, facts, columns, joining.partitions).with_one_partition(frame)
    source, window = divide_in_flight(asked, in_flight_max)
    fields = None if joining.fields is None else tuple(joining.fields)
    lookup = LookupTask(connection, table, ordered, names, joining.how, fields, size, window)
    if joining.how in ("left_semi", "left_anti"):
        return map_arrow(source, lookup, frame.schema)
    value = StructField(VALUE_COLUMN, StringType())
    found = map_arrow(source, lookup, StructType([*frame.schema.fields, value]))
    return _with_members(found, frame.columns, joining)


def _with_members(found: DataFrame, columns: Sequence[str], joining: JoinRequest) -> DataFrame:
    kept = [quoted(name) for name in columns]
    if joining.schema is None:
        require_unique_names([*columns, "value"], found)
        return found.select(*kept, F.col(VALUE_COLUMN).alias("value"))
    value = F.from_json(F.col(VALUE_COLUMN), joining.schema, {"mode": _MODES[joining.on_mismatch]})
    parsed = found.withColumn(VALUE_COLUMN, value)
    kind = parsed.schema[VALUE_COLUMN].dataType
    if not isinstance(kind, StructType):
        raise ValueError(f"a value is an object: its schema is a struct, not {kind.simpleString()}")
    require_unique_names([*columns, *kind.names], found)
    return parsed.select(*kept, f"{VALUE_COLUMN}.*")
