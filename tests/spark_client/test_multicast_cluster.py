"""Multicast on executors in processes of their own, one of which is lost."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from pyspark.sql import Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere
from pyspark.sql.functions import col, lit

from spark_client.sessions import session
from tableside_spark import StreamPartitioner, multicast

pytestmark = [pytest.mark.jvm, pytest.mark.filterwarnings("ignore::ResourceWarning")]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with session("local-cluster[2,1,1024]") as started:
        yield started


def executor_finder() -> Callable[[], psutil.Process]:
    """What finds the process that runs a task; made in a function, so that it travels by value as a program's does."""

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
    """Kill the process that runs the task, if an earlier task asked there and left what it made for this stage."""
    executor = executor_finder()

    def lose(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if not lost.exists() and str(executor().pid) in asked.read_text(encoding="ascii").split():
                lost.touch()
                executor().kill()
            yield batch

    return lose


def test_rows_are_counted_once_when_an_executor_is_lost_with_what_it_had_done(
    spark: SparkSession, tmp_path: Path
) -> None:
    asked, lost, observed = tmp_path / "asked", tmp_path / "lost", Observation()
    rows = spark.range(0, 1_000, numPartitions=4).select(lit("k").alias("key"), col("id").cast("string").alias("value"))
    copies = multicast(rows, noting(asked), num_partitions=2, topic="t", observed=observed)
    # What multicast gave goes to a second stage; when that loses it, the first is run again in part.
    schema = "key string, value string, partition int"
    later = copies.repartition(2, "value").mapInArrow(losing_its_executor_once(asked, lost), schema)
    counts = later.groupBy("partition").agg(F.count("*").alias("rows"), F.count_distinct("value").alias("values"))
    assert sorted(tuple(row) for row in counts.collect()) == [(0, 750, 750), (1, 750, 750)]
    assert lost.exists()
    assert len(asked.read_text(encoding="ascii").split()) > 1_000
    assert observed.get == {"rows": 1_000, "dropped": 250, "records": 1_500}
