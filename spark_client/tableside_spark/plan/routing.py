"""Plan the copies of rows for the partitions of a topic or a table, with the default that the service has."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Observation, functions as F
from pyspark.sql.types import ArrayType, IntegerType, IntegralType, NullType

from tableside_client.key_columns import comparable
from tableside_client.table_schema import TableSchema, wire_keys
from tableside_spark.executor.operation_batch import NO_PARTITION, PARTITION
from tableside_spark.partitioning import PartitionTask, default_partition, partition_function, range_error_text
from tableside_spark.plan.frames import (
    named_column,
    quoted,
    require_free_names,
    require_supported_session,
    require_unique_names,
)
from tableside_spark.versions import with_arrow_column

_DEFAULT_COLUMN = "__tableside_default_partition"


@dataclass(frozen=True, slots=True)
class TableRouting:
    """Routes the rows of a DataFrame to the partitions of a table."""

    table: str
    table_schema: TableSchema
    keys: tuple[str, ...]
    partitions: Any

    def row_per_partition(self, frame: DataFrame) -> DataFrame:
        """Return one row per partition, which is in the column `PARTITION`, or `NO_PARTITION` for none."""
        require_free_names(frame.columns)
        lists = F.when(F.size(LISTS_COLUMN) == 0, F.array(F.lit(NO_PARTITION))).otherwise(F.col(LISTS_COLUMN))
        kept = [quoted(name) for name in frame.columns]
        return self._with_lists(frame).select(*kept, F.explode(lists).alias(PARTITION))

    def with_one_partition(self, frame: DataFrame) -> DataFrame:
        """Add the single partition of each row. A row with none or several fails the query. The error names its key."""
        require_free_names(frame.columns)
        key = F.to_json(F.struct(*map(quoted, self.keys)))
        lists = F.col(LISTS_COLUMN)
        message = F.concat(
            F.lit(f"table {self.table}: a lookup is in exactly one partition; the row with the key "),
            key, F.lit(" is for "), F.size(lists).cast("string"),
        )  # fmt: skip
        one = F.when(F.size(lists) == 1, F.get(lists, 0)).otherwise(F.raise_error(message).cast("int"))
        return self._with_lists(frame).withColumn(PARTITION, one).drop(LISTS_COLUMN)

    def _with_lists(self, frame: DataFrame) -> DataFrame:
        count = self.table_schema.partitions
        if count is None:
            raise ValueError(f"table {self.table} is not partitioned: there are no partitions to choose from")
        others = [quoted(name) for name in frame.columns if name not in self.keys]
        # A partitioner receives a struct for a composite key, and the other columns as the value.
        key = quoted(self.keys[0]) if len(self.keys) == 1 else F.struct(*map(quoted, self.keys))
        value = F.struct(*others) if others else F.lit(None).cast("string")

        def default_partitions(texts: pa.Array) -> pa.Array:
            # A row without a valid key is refused later.
            return pa.array([default_partition(text or b"", count) for text in comparable(texts)], pa.int32())

        # The service's default is by the text of the key, or of the first part of a composite key.
        text = quoted(wire_keys(self.table_schema, self.keys)[0][0]).cast("string")
        listed = _with_partition_lists(frame, self.partitions, (key, value), "table", self.table, count)
        listed = with_arrow_column(listed, _DEFAULT_COLUMN, default_partitions, (text,), IntegerType())
        default = (F.size(LISTS_COLUMN) == 1) & F.get(LISTS_COLUMN, 0).isNull()
        chosen = F.when(default, F.array(_DEFAULT_COLUMN)).otherwise(F.col(LISTS_COLUMN))
        return listed.withColumn(LISTS_COLUMN, chosen).drop(_DEFAULT_COLUMN)


PARTITION_COLUMN = "partition"
LISTS_COLUMN = "__tableside_partitions"
_LIST_TYPE = ArrayType(IntegerType())


def multicast_frame(
    frame: DataFrame,
    partitions: Any,
    *,
    topic: str,
    num_partitions: int,
    key: str | None,
    value: str | None,
    observed: str | Observation,
) -> DataFrame:
    """Return the columns of the DataFrame and `partition`, with one row per copy. `multicast` has the arguments."""
    require_supported_session(frame)
    require_unique_names([*frame.columns, PARTITION_COLUMN], frame)
    require_free_names(frame.columns)
    if isinstance(partitions, Column):
        key = value = None  # a column of lists needs no inputs
    absent = F.lit(None).cast("string")
    inputs = [absent if name is None else named_column(frame, name) for name in (key, value)]
    checked = _with_partition_lists(frame, partitions, inputs, "topic", topic, num_partitions)
    copies = F.size(LISTS_COLUMN)
    counted = checked.observe(
        observed,
        F.count(F.lit(1)).alias("rows"),
        F.count_if(copies == 0).alias("dropped"),
        F.coalesce(F.sum(copies), F.lit(0)).alias("records"),
    )
    return counted.select(*map(quoted, frame.columns), F.explode(LISTS_COLUMN).alias(PARTITION_COLUMN))


def _with_partition_lists(
    frame: DataFrame, partitions: Any, inputs: Sequence[Column], kind: str, name: str, num_partitions: int
) -> DataFrame:
    """Add each row's partitions as a list without duplicates. `[null]` leaves the choice open."""
    where = f"{kind} {name}"
    if isinstance(partitions, Column):
        listed = frame.withColumn(LISTS_COLUMN, partitions)
    else:
        task = PartitionTask(partition_function(partitions), name, num_partitions, where)
        listed = with_arrow_column(frame, LISTS_COLUMN, task, inputs, _LIST_TYPE)
    column = listed.schema[LISTS_COLUMN].dataType
    if not isinstance(column, ArrayType) or not isinstance(column.elementType, IntegralType | NullType):
        raise TypeError(f"a column of partitions is {_LIST_TYPE.simpleString()}, not {column.simpleString()}")
    lists = F.col(LISTS_COLUMN)
    distinct = F.array_distinct(lists)
    default = (F.size(distinct) == 1) & F.get(distinct, 0).isNull()
    broadcast = lists.isNull() | ((F.size(distinct) == 1) & (F.get(distinct, 0) == -1))
    invalid = F.exists(distinct, lambda index: index.isNull() | (index < 0) | (index >= num_partitions))
    texts = F.transform(distinct, lambda index: F.coalesce(index.cast("string"), F.lit("null")))
    message = F.concat(F.lit(f"{range_error_text(where, num_partitions)} "), F.concat_ws(", ", texts))
    return listed.withColumn(
        LISTS_COLUMN,
        F.when(broadcast, F.sequence(F.lit(0), F.lit(num_partitions - 1)))
        .when(default, F.array(F.lit(None).cast("int")))
        .when(invalid, F.raise_error(message).cast(_LIST_TYPE))
        .otherwise(distinct.cast(_LIST_TYPE)),
    )
