"""The valid results of a partitioner, and its pickling for executors, without Spark."""

import datetime as dt
import subprocess
import sys
import warnings
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from tableside_spark import DEFAULT, DefaultPartitioner, StreamPartitioner
from tableside_spark.partitioning import PartitionTask, partition_function


def lists_of(*answers: Any) -> Any:
    """Convert results, one per record, to Arrow lists for 3 partitions."""
    remaining = iter(answers)
    placing = PartitionTask(lambda topic, key, value, count: next(remaining), "flights", 3, "topic flights")
    empty = pa.nulls(len(answers), pa.string())
    found = placing(empty, empty)
    assert found.type == pa.list_(pa.int32())
    return found.to_pylist()


def travelled(sent: Any) -> Any:
    """Return an object as it arrives on an executor."""
    return cloudpickle.loads(cloudpickle.dumps(sent))  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(
    ("answer", "kind", "match"),
    [
        ([3], ValueError, "topic flights: partitions are 0 to 2, or -1 alone for all of them; a record is for 3"),
        ([0, -2], ValueError, "a record is for -2"),
        ([2**70], ValueError, f"a record is for {2**70}"),
        ([True], TypeError, "topic flights: a partition is an int, not bool"),
        ([1.0], TypeError, "not float"),
        ([0, None], TypeError, "not NoneType"),
        ([DEFAULT], TypeError, "not Routing"),
        (1, TypeError, "topic flights: a partitioner returns a list, BROADCAST, DROP or DEFAULT, not int"),
        ({}, TypeError, "not dict"),
        (False, TypeError, "not bool"),
    ],
)
def test_an_answer_that_names_no_partitions_is_refused(answer: Any, kind: type[Exception], match: str) -> None:
    with pytest.raises(kind, match=match):
        lists_of([0], answer)


@pytest.mark.parametrize("zone", ["GMT+8", "Z", "America/New_York"])
def test_a_partitioner_receives_times_in_utc(zone: str) -> None:
    time = dt.datetime(2013, 7, 1, 5, tzinfo=dt.UTC)
    seen: list[Any] = []

    def remember(topic: str, key: Any, value: Any, count: int) -> list[int]:
        seen.append(value)
        return [0]

    task = PartitionTask(remember, "flights", 3, "topic flights")
    kind = pa.struct([("times", pa.list_(pa.timestamp("us", zone)))])
    task(pa.array(["a"]), pa.array([{"times": [time]}], kind))
    assert seen == [{"times": [time]}]
    assert seen[0]["times"][0].utcoffset() == dt.timedelta(0)


def test_a_time_that_python_lacks_is_refused_with_the_reason() -> None:
    task = PartitionTask(lambda *_: [0], "flights", 3, "topic flights")
    late = pa.array([{"time": 253_402_300_800}], pa.struct([("time", pa.timestamp("s", "UTC"))]))
    with pytest.raises(
        ValueError, match="topic flights: a partitioner cannot receive a time outside of the years 1 to"
    ):
        task(pa.array(["a"]), late)


def test_the_older_method_still_works_and_its_definition_warns() -> None:
    with pytest.warns(DeprecationWarning, match=r"Older defines partition\(\): define partitions\(\)") as caught:

        class Older(StreamPartitioner):
            def partition(self, topic: str, key: Any, value: Any, num_partitions: int) -> int | None:
                return None if key is None else int(key) % num_partitions

    assert [warning.filename for warning in caught] == [__file__]
    ask = partition_function(Older())
    assert ask("t", "7", None, 4) == [3]
    assert ask("t", None, None, 4) is DEFAULT
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded = travelled(Older())
    assert loaded.partitions("t", "7", None, 4) == [3]


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
    with pytest.raises(NotImplementedError, match=r"Nothing does not define partitions\(\)"):
        Nothing().partitions("t", None, None, 1)
    with pytest.raises(TypeError, match="not the class DefaultPartitioner"):
        partition_function(DefaultPartitioner)
    with pytest.raises(TypeError, match="not list"):
        partition_function([1])
