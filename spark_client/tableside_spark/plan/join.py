"""Plan the join of a DataFrame with a table."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from tableside_client.json_reader import OnMismatch, require_known
from tableside_client.paths import joined
from tableside_client.table_schema import wire_keys
from tableside_spark.executor.lookup_task import (
    MISMATCH_COLUMN,
    VALUE_COLUMN,
    FoundValues,
    LookupTask,
    json_reader,
    member_column,
)
from tableside_spark.executor.operation_batch import GENERATION
from tableside_spark.executor.task_client import Connection, Target, fetch_table_schema, shared_client
from tableside_spark.plan.concurrency import divide_in_flight
from tableside_spark.plan.frames import (
    check_key_columns,
    map_arrow,
    require_free_names,
    require_unique_names,
    with_strings,
)
from tableside_spark.plan.routing import TableRouting

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
_NEED_ALL_RECORDS = ("right", "rightouter", "full", "fullouter", "outer", "cross")

Schema = str | StructType | None


def join(
    target: Target,
    frame: DataFrame,
    on: str | Sequence[str],
    schema: Schema,
    *,
    how: str,
    on_mismatch: OnMismatch,
    fields: Sequence[str] | None,
    partitions: Any,
) -> DataFrame:
    """Return the frame with members of each row's value, or the rows that `how` keeps, as in `Table.enrich`."""
    how = join_type(how)
    require_known(on_mismatch)
    joined(fields)  # raises for names that a request cannot contain
    frame = with_strings(frame)
    columns = check_key_columns(frame, on)
    require_unique_names(frame.columns, frame)
    require_free_names(frame.columns)
    members = [] if how in _WITHOUT_MEMBERS else _members(frame, schema)
    table_schema = fetch_table_schema(target.connection, target.table, must_exist=True)
    ordered, names = wire_keys(table_schema, columns)
    routed = frame
    if partitions is not None:
        routed = TableRouting(target.table, table_schema, columns, partitions).with_one_partition(frame)
    source, divided = divide_in_flight(routed, table_schema.limits, target)
    if table_schema.pinned(target.table) != target.table:
        source = with_generation(source, target)
    # In columns with the types of the key, a key is invalid only if no record can have it, such as an empty text.
    kinds = ["string" if isinstance(frame.schema[name].dataType, StringType) else "integer" for name in ordered]
    lookup = LookupTask(
        target.connection,
        target.table,
        ordered,
        names,
        how,
        None if fields is None else tuple(fields),
        FoundValues(target.table, json_reader(members) if members else None, on_mismatch),
        divided.chunk,
        divided.window,
        ("record_not_found", *(["invalid_operation"] if kinds == list(table_schema.key_types) else [])),
    )
    if how in _WITHOUT_MEMBERS:
        return map_arrow(source, lookup, frame.schema)
    return _with_members(frame, members, source, lookup)


def _with_members(frame: DataFrame, members: Sequence[StructField], source: DataFrame, lookup: LookupTask) -> DataFrame:
    # Names have numbers in SQL, where Spark substitutes variables, and may read backticks as regular expressions.
    numbered = [
        StructField(f"__tableside_column_{at}", field.dataType, field.nullable, field.metadata)
        for at, field in enumerate(frame.schema.fields)
    ]
    added = [StructField(member_column(at), field.dataType) for at, field in enumerate(members)]
    text = StructField(MISMATCH_COLUMN if members else VALUE_COLUMN, StringType())
    found = map_arrow(source, lookup, StructType([*numbered, *added, text]))
    if not members:
        return found.toDF(*frame.columns, "value")
    # A member, or an error of one line if a member of the row does not fit.
    fit = f"CASE WHEN {MISMATCH_COLUMN} IS NULL THEN %s ELSE raise_error({MISMATCH_COLUMN}) END"
    selected = found.selectExpr(*(field.name for field in numbered), *(fit % field.name for field in added))
    return selected.toDF(*frame.columns, *(field.name for field in members))


def join_type(how: str) -> str:
    """Return the kind of a join. Raises `ValueError` for the ones that need all records of the table."""
    name = how.lower().replace("_", "")
    if name in HOW:
        return HOW[name]
    if name in _NEED_ALL_RECORDS:
        raise ValueError(
            f"how={how!r} returns records whose key is in no row of the frame, but a lookup reads only the keys of "
            'the frame: read the whole table with spark.read.format("tableside"), and join it with DataFrame.join'
        )
    raise ValueError(f"how is left, inner, left_semi or left_anti (also left_outer, semi or anti), not {how!r}")


def _members(frame: DataFrame, schema: Schema) -> list[StructField]:
    """Return the members of the schema, or none without a schema: values are then the column `value`."""
    if schema is None:
        require_unique_names([*frame.columns, "value"], frame)
        return []
    kind = frame.select(F.from_json(F.lit("{}"), schema).alias(VALUE_COLUMN)).schema[VALUE_COLUMN].dataType
    if not isinstance(kind, StructType):
        raise ValueError(f"a value is an object: its schema is a struct, not {kind.simpleString()}")
    if not kind.names:
        raise ValueError("the schema has no column; without a schema, the join adds the column `value` with JSON text")
    require_unique_names([*frame.columns, *kind.names], frame)
    require_free_names(kind.names)
    return kind.fields


def with_generation(frame: DataFrame, target: Target) -> DataFrame:
    """Add the column `GENERATION`, the current generation of a table.

    One task reads it when a query or micro-batch runs, and Spark sends it to all other tasks. So they look up keys in
    one generation, also if another one is activated between them. Later actions of the same DataFrame use it again.
    """
    task = partial(_current_generation, target.connection, target.table)
    current = map_arrow(frame.sparkSession.range(0, 1, 1, 1), task, StructType([StructField(GENERATION, LongType())]))
    return frame.crossJoin(F.broadcast(current))


def _current_generation(
    connection: Connection, table: str, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in filter(len, batches):
        description = shared_client(connection).table(table).describe()
        number = pa.array([description["generation"]] * len(batch), pa.int64())
        yield pa.RecordBatch.from_arrays([number], names=[GENERATION])
