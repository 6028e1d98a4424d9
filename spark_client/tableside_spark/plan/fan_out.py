"""A frame's rows copied to the partitions they are for: the plan, made on the driver."""

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import ArrayType, ByteType, IntegerType, LongType, NullType, ShortType

from tableside_spark.partitioning.partition_task import Placing, allowed
from tableside_spark.partitioning.partitioner import partitioning
from tableside_spark.plan.frames import quoted, refuse_duplicates

PARTITION_COLUMN = "partition"
LISTS_COLUMN = "__tableside_partitions"
_LISTS = "array<int>"
_INDEX_TYPES = (ByteType, ShortType, IntegerType, LongType, NullType)


@dataclass(frozen=True, slots=True)
class Target:
    """What has partitions: a topic, or a table whose name then stands for the topic's; `where` is for complaints."""

    where: str
    topic: str
    num_partitions: int


@dataclass(frozen=True, slots=True)
class Multicast:
    """A multicast as the caller asked for it."""

    topic: str
    num_partitions: int
    key: str | None
    value: str | None
    observed: str | Observation

    @property
    def target(self) -> Target:
        """Where the rows go."""
        return Target(f"topic {self.topic}", self.topic, self.num_partitions)


def copied(frame: DataFrame, partitions: Any, multicast: Multicast) -> DataFrame:
    """The frame's columns and `partition`, one row for each copy of a row."""
    refuse_duplicates([*frame.columns, PARTITION_COLUMN, LISTS_COLUMN], frame)
    asked = None if isinstance(partitions, Column) else (multicast.key, multicast.value)  # a column is given nothing
    key, value = (_named(frame, name) for name in asked or (None, None))
    checked = with_lists(frame, partitions, key, value, multicast.target)
    kept = [quoted(name) for name in frame.columns]
    return _counted(checked, multicast.observed).select(*kept, F.explode(LISTS_COLUMN).alias(PARTITION_COLUMN))


def with_lists(frame: DataFrame, partitions: Any, key: Column, value: Column, target: Target) -> DataFrame:
    """The frame with each row's partitions beside it, each once; `[null]` leaves the choice to others."""
    lists = partitions if isinstance(partitions, Column) else _asked(partitions, key, value, target)
    listed = frame.withColumn(LISTS_COLUMN, lists)
    _refuse_what_lists_no_integers(listed)
    return listed.withColumn(LISTS_COLUMN, _each_once(F.col(LISTS_COLUMN), target))


def _asked(partitions: Any, key: Column, value: Column, target: Target) -> Column:
    """The lists, from a partitioner in Python."""
    placing = Placing(partitioning(partitions), target.topic, target.num_partitions, target.where)

    def place(keys: pa.Array, values: pa.Array) -> pa.Array:
        return placing(keys, values)

    # A function that is not deterministic is called once for a row, wherever the plan uses what it gave.
    call = arrow_udf(place, _LISTS).asNondeterministic()  # type: ignore[call-overload]  # known there: what warns
    lists: Column = call(key, value)
    return lists


def _named(frame: DataFrame, name: str | None) -> Column:
    if name is None:
        return F.lit(None).cast("string")
    if name not in frame.columns:
        raise ValueError(f"the frame has no column {name!r}; it has {', '.join(frame.columns)}")
    return quoted(name)


def _refuse_what_lists_no_integers(listed: DataFrame) -> None:
    kind = listed.schema[LISTS_COLUMN].dataType
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, _INDEX_TYPES):
        raise TypeError(f"a column of partitions is {_LISTS}, not {kind.simpleString()}")


def _each_once(lists: Column, target: Target) -> Column:
    """The list with each partition once, all of them for a broadcast; anything that is no partition fails the row."""
    count = target.num_partitions
    once = F.array_distinct(lists)
    default = (F.size(once) == 1) & F.get(once, 0).isNull()
    everywhere = lists.isNull() | ((F.size(once) == 1) & (F.get(once, 0) == -1))
    wrong = F.exists(once, lambda index: index.isNull() | (index < 0) | (index >= count))
    complaint = F.concat(F.lit(f"{allowed(target.where, count)} "), F.concat_ws(", ", F.transform(once, _shown)))
    return (
        F.when(everywhere, F.sequence(F.lit(0), F.lit(count - 1)))
        .when(default, F.array(F.lit(None).cast("int")))
        .when(wrong, F.raise_error(complaint).cast(_LISTS))
        .otherwise(once.cast(_LISTS))
    )


def _shown(index: Column) -> Column:
    return F.coalesce(index.cast("string"), F.lit("null"))


def _counted(checked: DataFrame, observed: str | Observation) -> DataFrame:
    copies = F.size(LISTS_COLUMN)
    return checked.observe(
        observed,
        F.count(F.lit(1)).alias("rows"),
        F.count_if(copies == 0).alias("dropped"),
        F.coalesce(F.sum(copies), F.lit(0)).alias("records"),
    )
