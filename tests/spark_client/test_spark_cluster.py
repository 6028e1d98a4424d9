"""Writes and copies on executors in separate processes: tasks fail after they have sent, an executor is lost."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import (
    Observation,
    SparkSession,
    functions as F,  # noqa: N812 - its name everywhere
)
from pyspark.sql.functions import col, lit

from spark_client.sessions import jvm, session
from support.running import Service
from tableside_spark import StreamPartitioner, Table, multicast
from tableside_spark.executor.write_task import WriteTask
from tableside_spark.write import job

pytestmark = [pytest.mark.daily, *jvm("spark")]

ROWS = 4_000
KEYS = 200


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with session("local-cluster[2,1,1024]") as started:
        yield started


def failing_once_after_sending() -> Any:
    """Return a replacement of `WriteTask`: the first attempt of every task fails after everything has been sent."""

    class Failing:
        def __init__(self, *arguments: Any, **named: Any) -> None:
            self._task = WriteTask(*arguments, **named)

        def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield from self._task(batches)
            context = TaskContext.get()
            if context is not None and context.attemptNumber() == 0:
                raise RuntimeError("failed on purpose, after sending")

    return Failing


def test_tasks_that_fail_after_sending_count_once(
    spark: SparkSession, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "WriteTask", failing_once_after_sending())
    frame = spark.range(ROWS).select((col("id") % KEYS).cast("string").alias("k"), col("id").alias("n"))
    table = Table("cluster_retry", service.url)
    put = table.put(frame.where(col("n") < KEYS), "k", columns=[])
    assert (put.sent, put.applied, put.failed) == (KEYS, KEYS, 0)
    summary = table.update(frame, "k", {"$inc": {"count": lit(1), "sum": col("n")}})
    assert (summary.operations, summary.sent, summary.failed) == (KEYS, ROWS, 0)
    assert (summary.applied, summary.replayed) == (0, ROWS)
    found = table.join(spark.range(KEYS).select(col("id").cast("string").alias("k")), "k", "count int, sum long")
    total = found.agg(F.sum("count"), F.sum("sum"), F.min("count"), F.max("count")).collect()[0]
    assert tuple(total) == (ROWS, sum(range(ROWS)), ROWS // KEYS, ROWS // KEYS)
    deleted = table.delete(frame, "k")
    assert (deleted.operations, deleted.sent, deleted.replayed) == (KEYS, ROWS, ROWS)


def executor_finder() -> Callable[[], psutil.Process]:
    """Return a function that finds the process of a task. It is local, so that Spark ships it by value."""

    def find() -> psutil.Process:
        found = psutil.Process().parents()[1]
        assert any("CoarseGrainedExecutorBackend" in word for word in found.cmdline())
        return found

    return find


def noting(asked: Path) -> StreamPartitioner:
    executor = executor_finder()

    class Noting(StreamPartitioner):
        def partitions(self, topic: str, key: Any, value: Any, num_partitions: int) -> list[int]:
            self.executor = getattr(self, "executor", None) or executor().pid
            with asked.open("a", encoding="ascii") as file:
                file.write(f"{self.executor}\n")
            return [0, 1] if int(value) % 4 else []

    return Noting()


def losing_its_executor_once(asked: Path, lost: Path) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Kill the process of the task if an earlier task ran there and left its output for this stage."""
    executor = executor_finder()

    def lose(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if not lost.exists() and str(executor().pid) in asked.read_text(encoding="ascii").split():
                lost.touch()
                executor().kill()
            yield batch

    return lose


def test_rows_count_once_if_an_executor_with_finished_tasks_is_lost(spark: SparkSession, tmp_path: Path) -> None:
    asked, lost, observed = tmp_path / "asked", tmp_path / "lost", Observation()
    rows = spark.range(0, 1_000, numPartitions=4).select(lit("k").alias("key"), col("id").cast("string").alias("value"))
    copies = multicast(rows, noting(asked), num_partitions=2, topic="t", observed=observed)
    # The output of multicast goes to a second stage. If that loses it, part of the first stage runs again.
    schema = "key string, value string, partition int"
    later = copies.repartition(2, "value").mapInArrow(losing_its_executor_once(asked, lost), schema)
    counts = later.groupBy("partition").agg(F.count("*").alias("rows"), F.count_distinct("value").alias("values"))
    assert sorted(tuple(row) for row in counts.collect()) == [(0, 750, 750), (1, 750, 750)]
    assert lost.exists()
    assert len(asked.read_text(encoding="ascii").split()) > 1_000
    assert observed.get == {"rows": 1_000, "dropped": 250, "records": 1_500}
