"""Plan the copies of rows for the partitions of a topic or a table.

The partitions of a table must be known before rows are grouped, because the rows with one key become one operation per
partition. The default partition is therefore computed here, in the same way as in the service.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere
from pyspark.sql.types import ArrayType, ByteType, IntegerType, LongType, NullType, ShortType

from tableside_spark.executor.key_columns import comparable
from tableside_spark.executor.operation_batch import NO_PARTITION, PARTITION
from tableside_spark.partitioning.partition_task import PartitionTask, range_error_text
from tableside_spark.partitioning.partitioner import default_partition, partition_function
from tableside_spark.plan.frames import quoted, require_free_names, require_supported_session, require_unique_names
from tableside_spark.plan.table_schema import TableSchema, wire_keys
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
        target = PartitionTarget(f"table {self.table}", self.table, count)
        listed = with_partition_lists(frame, self.partitions, self._key(), self._value(frame), target)
        default = (F.size(LISTS_COLUMN) == 1) & F.get(LISTS_COLUMN, 0).isNull()
        chosen = F.when(default, F.array(_DEFAULT_COLUMN)).otherwise(F.col(LISTS_COLUMN))
        return self._with_default(listed, count).withColumn(LISTS_COLUMN, chosen).drop(_DEFAULT_COLUMN)

    def _key(self) -> Column:
        """The key that a partitioner receives: a column, or a struct for a composite key."""
        return quoted(self.keys[0]) if len(self.keys) == 1 else F.struct(*map(quoted, self.keys))

    def _value(self, frame: DataFrame) -> Column:
        """The value that a partitioner receives: the other columns."""
        names = _others(frame.columns, self.keys)
        return F.struct(*map(quoted, names)) if names else F.lit(None).cast("string")

    def _with_default(self, frame: DataFrame, count: int) -> DataFrame:
        """Add the service's default partition: by the text of the key, or of the first part of a composite key."""

        def default_partitions(texts: pa.Array) -> pa.Array:
            # A row without a valid key is refused later.
            return pa.array([default_partition(text or b"", count) for text in comparable(texts)], pa.int32())

        first = wire_keys(self.table_schema, self.keys)[0][0]
        text = quoted(first).cast("string")
        return with_arrow_column(frame, _DEFAULT_COLUMN, default_partitions, (text,), IntegerType())


def _others(columns: Sequence[str], keys: Sequence[str]) -> list[str]:
    return [name for name in columns if name not in keys]


PARTITION_COLUMN = "partition"
LISTS_COLUMN = "__tableside_partitions"
_LIST_TYPE = ArrayType(IntegerType())
_INDEX_TYPES = (ByteType, ShortType, IntegerType, LongType, NullType)


@dataclass(frozen=True, slots=True)
class PartitionTarget:
    """A topic with its number of partitions, or a table, whose name replaces the topic's. Errors begin with `where`."""

    where: str
    topic: str
    num_partitions: int


@dataclass(frozen=True, slots=True)
class MulticastOptions:
    """The arguments of `multicast`."""

    topic: str
    num_partitions: int
    key: str | None
    value: str | None
    observed: str | Observation

    @property
    def target(self) -> PartitionTarget:
        """The topic."""
        return PartitionTarget(f"topic {self.topic}", self.topic, self.num_partitions)


def multicast_frame(frame: DataFrame, partitions: Any, multicast: MulticastOptions) -> DataFrame:
    """Return the columns of the DataFrame and `partition`, with one row per copy."""
    require_supported_session(frame)
    require_unique_names([*frame.columns, PARTITION_COLUMN], frame)
    require_free_names(frame.columns)
    names = (
        None if isinstance(partitions, Column) else (multicast.key, multicast.value)
    )  # a column of lists needs no inputs
    key, value = (_optional_column(frame, name) for name in names or (None, None))
    checked = with_partition_lists(frame, partitions, key, value, multicast.target)
    kept = [quoted(name) for name in frame.columns]
    return _with_metrics(checked, multicast.observed).select(*kept, F.explode(LISTS_COLUMN).alias(PARTITION_COLUMN))


def with_partition_lists(
    frame: DataFrame, partitions: Any, key: Column, value: Column, target: PartitionTarget
) -> DataFrame:
    """Add each row's partitions as a list without duplicates. `[null]` leaves the choice to the caller."""
    if isinstance(partitions, Column):
        listed = frame.withColumn(LISTS_COLUMN, partitions)
    else:
        task = PartitionTask(partition_function(partitions), target.topic, target.num_partitions, target.where)
        listed = with_arrow_column(frame, LISTS_COLUMN, task, (key, value), _LIST_TYPE)
    _require_integer_lists(listed)
    return listed.withColumn(LISTS_COLUMN, _normalize_lists(F.col(LISTS_COLUMN), target))


def _optional_column(frame: DataFrame, name: str | None) -> Column:
    if name is None:
        return F.lit(None).cast("string")
    if name not in frame.columns:
        raise ValueError(f"the frame has no column {name!r}; it has {', '.join(frame.columns)}")
    return quoted(name)


def _require_integer_lists(listed: DataFrame) -> None:
    kind = listed.schema[LISTS_COLUMN].dataType
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, _INDEX_TYPES):
        raise TypeError(f"a column of partitions is {_LIST_TYPE.simpleString()}, not {kind.simpleString()}")


def _normalize_lists(lists: Column, target: PartitionTarget) -> Column:
    """Remove duplicates, and expand broadcasts to all partitions. An invalid partition fails the query."""
    count = target.num_partitions
    distinct = F.array_distinct(lists)
    default = (F.size(distinct) == 1) & F.get(distinct, 0).isNull()
    broadcast = lists.isNull() | ((F.size(distinct) == 1) & (F.get(distinct, 0) == -1))
    invalid = F.exists(distinct, lambda index: index.isNull() | (index < 0) | (index >= count))
    message = F.concat(
        F.lit(f"{range_error_text(target.where, count)} "), F.concat_ws(", ", F.transform(distinct, _index_text))
    )
    return (
        F.when(broadcast, F.sequence(F.lit(0), F.lit(count - 1)))
        .when(default, F.array(F.lit(None).cast("int")))
        .when(invalid, F.raise_error(message).cast(_LIST_TYPE))
        .otherwise(distinct.cast(_LIST_TYPE))
    )


def _index_text(index: Column) -> Column:
    return F.coalesce(index.cast("string"), F.lit("null"))


def _with_metrics(checked: DataFrame, observed: str | Observation) -> DataFrame:
    copies = F.size(LISTS_COLUMN)
    return checked.observe(
        observed,
        F.count(F.lit(1)).alias("rows"),
        F.count_if(copies == 0).alias("dropped"),
        F.coalesce(F.sum(copies), F.lit(0)).alias("records"),
    )
