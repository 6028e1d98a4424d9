"""Partitioners: Kafka's hash, the valid results, and pickling for executors, without Spark."""

import datetime as dt
import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest

from spark_client.kafka_placement.keys import placed
from tableside_spark import DefaultPartitioner, StreamPartitioner, default_partition
from tableside_spark.partitioning import PartitionTask, murmur2, partition_function


def test_500_keys_have_the_partitions_of_kafkas_producer() -> None:
    table = placed()
    assert len(table) == 500
    for row in table:
        assert murmur2(row.key if isinstance(row.key, bytes) else row.key.encode()) == row.hash
        assert default_partition(row.key, row.num_partitions) == row.partition


@pytest.mark.parametrize("key", [7, None, 1.5, bytearray(b"7")])
def test_a_key_that_is_neither_text_nor_bytes_is_rejected(key: object) -> None:
    with pytest.raises(TypeError, match=f"not {type(key).__name__}"):
        default_partition(key, 3)  # type: ignore[arg-type]


def test_a_partitioner_receives_times_in_utc() -> None:
    time = dt.datetime(2013, 7, 1, 5, tzinfo=dt.UTC)
    seen: list[Any] = []

    def remember(topic: str, key: Any, value: Any, count: int) -> list[int]:
        seen.append(value)
        return [0]

    kind = pa.struct([("times", pa.list_(pa.timestamp("us", "America/New_York")))])
    PartitionTask(remember, "flights", 3, "topic flights")(pa.array(["a"]), pa.array([{"times": [time]}], kind))
    assert seen == [{"times": [time]}]
    assert seen[0]["times"][0].utcoffset() == dt.timedelta(0)


def test_a_time_that_python_lacks_is_refused_with_the_reason() -> None:
    task = PartitionTask(lambda *_: [0], "flights", 3, "topic flights")
    late = pa.array([{"time": 253_402_300_800}], pa.struct([("time", pa.timestamp("s", "UTC"))]))
    with pytest.raises(
        ValueError, match="topic flights: a partitioner cannot receive a time outside of the years 1 to"
    ):
        task(pa.array(["a"]), late)


def test_a_partitioner_works_without_spark() -> None:
    program = (
        "import sys, tableside_spark as t; t.DefaultPartitioner().partitions('t', 'k', None, 3); print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert "tableside_spark.partitioning" in done.stdout.split()
    assert "pyspark" not in done.stdout.split()


def test_an_invalid_partitioner_is_rejected() -> None:
    class Nothing(StreamPartitioner):
        pass

    with pytest.raises(TypeError, match=r"Nothing does not define partitions\(\)"):
        partition_function(Nothing())
    with pytest.raises(TypeError, match="not the class DefaultPartitioner"):
        partition_function(DefaultPartitioner)
    with pytest.raises(TypeError, match="not list"):
        partition_function([1])
