"""Route rows to the partitions of a table: one row per partition.

The partitions must be known before rows are grouped, because the rows with one key become one operation per partition.
The default partition is therefore computed here, in the same way as in the service.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere
from pyspark.sql.types import IntegerType

from tableside_spark.executor.operation_batch import NO_PARTITION, PARTITION
from tableside_spark.executor.texts import comparable
from tableside_spark.partitioning.partitioner import default_partition
from tableside_spark.plan.fan_out import LISTS_COLUMN, PartitionTarget, with_partition_lists
from tableside_spark.plan.frames import quoted, require_free_names
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
