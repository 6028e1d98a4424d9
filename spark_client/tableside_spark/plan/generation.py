"""The generation of a table in which a query looks up keys, as a column."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import (
    DataFrame,
    functions as F,  # noqa: N812 - its name everywhere
)
from pyspark.sql.types import LongType, StructField, StructType

from tableside_client.connection import Connection, shared_client
from tableside_spark.executor.operation_batch import GENERATION
from tableside_spark.plan.frames import map_arrow
from tableside_spark.plan.table_schema import Target


def with_generation(frame: DataFrame, target: Target) -> DataFrame:
    """Add the column `GENERATION`, the current generation of a table.

    One task reads it when a query runs, and in each micro-batch of a stream, and Spark sends it to all other tasks. So
    they look up keys in one generation, also if another one is activated between them. Spark keeps it for later actions
    of the same DataFrame.
    """
    task = CurrentGeneration(target.connection, target.table)
    current = map_arrow(frame.sparkSession.range(0, 1, 1, 1), task, StructType([StructField(GENERATION, LongType())]))
    return frame.crossJoin(F.broadcast(current))


@dataclass(frozen=True, slots=True)
class CurrentGeneration:
    """Replaces its only row by the number of a table's current generation."""

    connection: Connection
    table: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read the number. Raises `TablesideError`."""
        for batch in filter(len, batches):
            description = shared_client(self.connection).table(self.table).describe()
            number = pa.array([description["generation"]] * len(batch), pa.int64())
            yield pa.RecordBatch.from_arrays([number], names=[GENERATION])
