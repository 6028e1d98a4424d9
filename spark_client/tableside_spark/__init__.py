"""Tableside for Spark: join frames with tables, write frames to them, and send rows to partitions of a topic.

Importing this needs neither Spark nor the service; executors need no more than it, PySpark and this machine's
network.
"""

from typing import TYPE_CHECKING

from tableside_client.client import TableClient
from tableside_client.errors import TableError
from tableside_client.retries import Retries
from tableside_spark.executor.chunks import ChunkSize
from tableside_spark.multicast import multicast
from tableside_spark.partitioning.partitioner import (
    BROADCAST,
    DEFAULT,
    DROP,
    DefaultPartitioner,
    StreamPartitioner,
    default_partition,
)
from tableside_spark.table import Table
from tableside_spark.write.progress import progress
from tableside_spark.write.summary import TableWriteError, WriteStats, WriteSummary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "BROADCAST",
    "DEFAULT",
    "DROP",
    "ChunkSize",
    "DefaultPartitioner",
    "Retries",
    "StreamPartitioner",
    "Table",
    "TableClient",
    "TableError",
    "TableWriteError",
    "WriteStats",
    "WriteSummary",
    "default_partition",
    "multicast",
    "progress",
    "register",
]


def register(spark: "SparkSession") -> None:
    """Make the format `tableside` known to the session, where it has not been found by itself."""
    from tableside_spark.datasource.source import TablesideSource

    spark.dataSource.register(TablesideSource)
