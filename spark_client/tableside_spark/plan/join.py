"""A frame joined with a table: the plan, made on the driver."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere
from pyspark.sql.types import StringType, StructField, StructType

from tableside_client.connection import Connection
from tableside_spark.executor.chunks import ChunkSize
from tableside_spark.executor.lookup_task import VALUE_COLUMN, Lookup
from tableside_spark.plan.frames import key_names, map_arrow, quoted, refuse_duplicates, share_in_flight
from tableside_spark.plan.routing import Routing
from tableside_spark.plan.table_schema import TableFacts, table_facts, wire_keys

HOW = ("left", "inner", "left_semi", "left_anti")
_MODES = {"fail": "FAILFAST", "null": "PERMISSIVE"}

Schema = str | StructType | None


@dataclass(frozen=True, slots=True)
class Joining:
    """A join as the caller asked for it."""

    on: str | Sequence[str]
    schema: Schema
    how: str
    on_mismatch: Literal["fail", "null"]
    fields: Sequence[str] | None
    partitions: Any = None


def joined(
    connection: Connection, table: str, frame: DataFrame, joining: Joining, in_flight_max: int, size: ChunkSize
) -> DataFrame:
    """The frame with the value's members beside its columns, or only those of its rows that `how` keeps."""
    if joining.how not in HOW:
        raise ValueError(f"how is one of {', '.join(HOW)}, not {joining.how!r}")
    if joining.on_mismatch not in _MODES:
        raise ValueError(f"on_mismatch is fail or null, not {joining.on_mismatch!r}")
    refuse_duplicates(frame.columns, frame)
    columns = key_names(frame, joining.on)
    known = len(columns) > 1 or joining.partitions is not None
    facts = table_facts(connection, table) if known else TableFacts()
    ordered, names = wire_keys(facts, columns)
    asked = frame
    if joining.partitions is not None:
        asked = Routing(table, facts, columns, joining.partitions).singletons(frame)
    source, window = share_in_flight(asked, in_flight_max)
    fields = None if joining.fields is None else tuple(joining.fields)
    lookup = Lookup(connection, table, ordered, names, joining.how, fields, size, window)
    if joining.how in ("left_semi", "left_anti"):
        return map_arrow(source, lookup, frame.schema)
    value = StructField(VALUE_COLUMN, StringType())
    found = map_arrow(source, lookup, StructType([*frame.schema.fields, value]))
    return _with_members(found, frame.columns, joining)


def _with_members(found: DataFrame, columns: Sequence[str], joining: Joining) -> DataFrame:
    kept = [quoted(name) for name in columns]
    if joining.schema is None:
        refuse_duplicates([*columns, "value"], found)
        return found.select(*kept, F.col(VALUE_COLUMN).alias("value"))
    value = F.from_json(F.col(VALUE_COLUMN), joining.schema, {"mode": _MODES[joining.on_mismatch]})
    parsed = found.withColumn(VALUE_COLUMN, value)
    kind = parsed.schema[VALUE_COLUMN].dataType
    if not isinstance(kind, StructType):
        raise ValueError(f"a value is an object: its schema is a struct, not {kind.simpleString()}")
    refuse_duplicates([*columns, *kind.names], found)
    return parsed.select(*kept, f"{VALUE_COLUMN}.*")
