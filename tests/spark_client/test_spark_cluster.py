"""Writes from executors in processes of their own, where tasks fail after they have sent."""

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere
from pyspark.sql.functions import col, lit

from running import Service
from spark_client.sessions import session
from tableside_spark import Table, writes
from tableside_spark.sending import Sending

pytestmark = [pytest.mark.jvm, pytest.mark.filterwarnings("ignore::ResourceWarning")]

ROWS = 4_000
KEYS = 200


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with session("local-cluster[2,1,1024]") as started:
        yield started


def failing_once_after_sending() -> Any:
    """`Sending`, but for the first attempt of every task, which fails when everything has been sent."""

    class Failing:
        def __init__(self, **arguments: Any) -> None:
            self._sending = Sending(**arguments)

        def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield from self._sending(batches)
            context = TaskContext.get()
            if context is not None and context.attemptNumber() == 0:
                raise RuntimeError("failed on purpose, after sending")

    return Failing


def test_tasks_that_fail_after_sending_change_nothing_twice_and_count_once(
    spark: SparkSession, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writes, "Sending", failing_once_after_sending())
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
