"""Writes on executors in separate processes, whose tasks fail after they have sent."""

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import (
    SparkSession,
    functions as F,  # noqa: N812 - its name everywhere
)
from pyspark.sql.functions import col, lit

from spark_client.sessions import jvm, session
from support.running import Service
from tableside_spark import Table
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
