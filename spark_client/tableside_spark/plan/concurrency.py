"""Divide the requests in flight of a job among its tasks, within the limits of the service."""

from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from pyspark.sql import DataFrame, functions as F

from tableside_client.arrow_table import ChunkSize
from tableside_client.table_schema import ServiceLimits
from tableside_spark.executor.task_client import Target
from tableside_spark.plan.frames import is_remote

JOB_SHARE = 0.5
"""The part of the service's in-flight limits that one job may use."""

_SLOTS_MAX = 100_000
_slots_by_session: "WeakKeyDictionary[Any, int]" = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class Concurrency:
    """The maximum number of concurrent tasks, of each task's requests in flight, and the size of a request."""

    tasks: int
    window: int
    chunk: ChunkSize


def concurrency(limits: ServiceLimits, slots: int, in_flight_max: int, chunk: ChunkSize) -> Concurrency:
    """Return the concurrency of a job with so many slots. With many tasks, requests are smaller, not too many."""
    requests = min(in_flight_max, _share(limits.in_flight_max))
    operations, size_bytes = _share(limits.operations_in_flight_max), _share(limits.bytes_in_flight_max)
    tasks = min(slots, requests, operations, size_bytes)
    rows_max = min(chunk.rows_max, limits.operations_max, operations // tasks)
    bytes_max = min(chunk.bytes_max, limits.body_bytes_max, size_bytes // tasks)
    window = min(requests // tasks, operations // (tasks * rows_max), size_bytes // (tasks * bytes_max))
    return Concurrency(tasks, window, ChunkSize(rows_max, bytes_max))


def divide_in_flight(frame: DataFrame, limits: ServiceLimits, target: Target) -> tuple[DataFrame, Concurrency]:
    """Return the DataFrame, coalesced if there are more slots than tasks, and the job's concurrency."""
    session = frame.sparkSession
    if not is_remote(frame):
        slots = max(1, session.sparkContext.defaultParallelism)
    else:
        if session not in _slots_by_session:  # counted with a small job: a range has a partition per slot
            partitions = session.range(_SLOTS_MAX).select(F.spark_partition_id().alias("partition"))
            last = partitions.agg(F.max("partition").alias("last")).collect()[0]["last"]
            _slots_by_session[session] = int(last) + 1
        slots = _slots_by_session[session]
    divided = concurrency(limits, slots, target.in_flight_max, target.chunk)
    return (frame.coalesce(divided.tasks) if divided.tasks < slots else frame), divided


def _share(limit: int) -> int:
    return max(1, int(limit * JOB_SHARE))
