"""`multicast`: what a Spark program calls. Reads the caller's arguments; imports Spark only when it is used."""

from typing import TYPE_CHECKING

from tableside_spark.partitioning.partitioner import Partitioning, StreamPartitioner

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Observation

PARTITIONS_MAX = 100_000


def multicast(
    frame: "DataFrame",
    partitions: "StreamPartitioner | Partitioning | Column",
    *,
    num_partitions: int,
    topic: str,
    key: str | None = "key",
    value: str | None = "value",
    observed: "str | Observation | None" = None,
) -> "DataFrame":
    """The frame, batch or streaming, with one row for each partition that a row is for, named in `partition`.

    Kafka's sink reads that column; it is null for a record whose partition Kafka is to choose. Rows for no
    partition are gone. `partitions` says which they are: a `StreamPartitioner` or a function like its
    `partitions` runs in Python, in Arrow batches, and is given `topic` and what the columns `key` and `value`
    hold (None for a column that is None: what it need not see is not sent to it). A column of arrays of integers
    is evaluated in the JVM alone: `[]` drops, null or `[-1]` broadcasts, `[null]` leaves it to Kafka.

    `num_partitions` (at most `PARTITIONS_MAX`) is what the topic has when the query starts. A partition beyond
    it fails the query.

    `observed` names the metrics `rows`, `dropped` and `records` (rows that are left, copies counted), by
    default `multicast_` and the topic; an `Observation` gives them to a batch job.
    """
    from tableside_spark.plan.fan_out import Multicast, copied

    if not isinstance(topic, str):
        raise TypeError(f"topic is the name of one, not {type(topic).__name__}")
    name = f"multicast_{topic}" if observed is None else observed
    return copied(frame, partitions, Multicast(topic, _count(num_partitions), key, value, name))


def _count(num_partitions: object) -> int:
    if isinstance(num_partitions, bool) or not isinstance(num_partitions, int):
        raise TypeError(f"num_partitions is an int, not {type(num_partitions).__name__}")
    if not 1 <= num_partitions <= PARTITIONS_MAX:
        raise ValueError(f"num_partitions is 1 to {PARTITIONS_MAX}, not {num_partitions}")
    return num_partitions
