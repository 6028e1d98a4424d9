"""`multicast`: one row for each partition that a row belongs to. It imports Spark only when it is called."""

from typing import TYPE_CHECKING

from tableside_spark.partitioning import PartitionFunction, StreamPartitioner

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Observation

PARTITIONS_MAX = 100_000


def multicast(
    frame: "DataFrame",
    partitions: "StreamPartitioner | PartitionFunction | Column",
    *,
    num_partitions: int,
    topic: str,
    key: str | None = "key",
    value: str | None = "value",
    observed: "str | Observation | None" = None,
) -> "DataFrame":
    """Copy each row to the partitions of a Kafka topic that it belongs to.

    The result has a column `partition`, which Spark's Kafka sink reads. Null leaves the choice of the partition to
    Kafka. A row that belongs to no partition is dropped.

    Args:
        frame: A batch or streaming DataFrame.
        partitions: A `StreamPartitioner`, a function with the signature of its method `partitions`, or a column of
            arrays of integers. The first two run in Python on Arrow batches, the column in the JVM only. In arrays,
            `[]` drops the row, null or `[-1]` broadcasts it, and `[null]` leaves the choice to Kafka.
        num_partitions: The number of the topic's partitions when the query starts, from 1 to 100,000. A partition
            outside of this range fails the query.
        topic: The topic's name, passed to the partitioner.
        key: The column that the partitioner receives as the key. With None, it receives None, and no column is
            sent to Python.
        value: The column that the partitioner receives as the value, like `key`.
        observed: The name of the observed metrics `rows`, `dropped` and `records` (rows of the result, copies counted),
            or an `Observation`, which returns them to a batch job. Default: `multicast_` and the topic's name.

    Returns:
        The DataFrame with the column `partition`, and one row per copy.

    Raises:
        TypeError: `topic` is not a string, or `num_partitions` is not an integer.
        ValueError: `num_partitions` is out of range.

    Example:
        ```python
        def by_region(topic, key, value, num_partitions):
            return BROADCAST if key is None else [int(key) % num_partitions]

        multicast(frame, by_region, num_partitions=12, topic="orders").write.format("kafka")
        ```
    """
    from tableside_spark.plan.routing import multicast_frame

    if not isinstance(topic, str):
        raise TypeError(f"topic must be a string, not {type(topic).__name__}")
    if isinstance(num_partitions, bool) or not isinstance(num_partitions, int):
        raise TypeError(f"num_partitions is an int, not {type(num_partitions).__name__}")
    if not 1 <= num_partitions <= PARTITIONS_MAX:
        raise ValueError(f"num_partitions is 1 to {PARTITIONS_MAX}, not {num_partitions}")
    observed = f"multicast_{topic}" if observed is None else observed
    return multicast_frame(
        frame, partitions, topic=topic, num_partitions=num_partitions, key=key, value=value, observed=observed
    )
