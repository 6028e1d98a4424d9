"""Tableside for Spark: join, write and route DataFrames. The import requires no Spark."""

from typing import TYPE_CHECKING

from tableside_client.arrow_table import ChunkSize
from tableside_client.errors import TableError
from tableside_client.retries import Retries
from tableside_spark.multicast import multicast
from tableside_spark.partitioning import (
    BROADCAST,
    DEFAULT,
    DROP,
    DefaultPartitioner,
    StreamPartitioner,
    default_partition,
)
from tableside_spark.table import Table
from tableside_spark.write.summary import RunRefusedError, TableWriteError, WriteStats, WriteSummary, progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "BROADCAST", "DEFAULT", "DROP", "ChunkSize", "DefaultPartitioner", "Retries", "RunRefusedError",
    "StreamPartitioner", "Table", "TableError", "TableWriteError", "WriteStats", "WriteSummary", "default_partition",
    "multicast", "progress", "register",
]  # fmt: skip


def register(spark: "SparkSession") -> None:
    """Register the data source `tableside` with a session. Raises `PySparkVersionError` with PySpark 3.5.

    Sessions find the data source without this call if they search for installed data sources.
    """
    from tableside_spark.versions import require

    require("the data source tableside")
    from tableside_spark.datasource.source import TablesideSource

    spark.dataSource.register(TablesideSource)
