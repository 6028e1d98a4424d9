"""Queries that multicast to a real broker and are restarted from their checkpoint."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark import TaskContext
from pyspark.errors import StreamingQueryException
from pyspark.sql import (
    DataFrame,
    SparkSession,
    functions as F,  # noqa: N812 - its name everywhere
)

from spark_client.kafka_sessions import ATTEMPTS
from spark_client.kafka_streams import Copies, counted, drain, fill, held, stream_of
from support.kafka_topics import create_topic
from tableside_spark import multicast

pytestmark = [
    pytest.mark.jvm,
    pytest.mark.xdist_group("spark"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

BATCH = 100


@pytest.fixture(scope="module")
def spark(spark: SparkSession) -> SparkSession:
    """Several batches of Arrow precede a failure at the end of a micro-batch."""
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", BATCH // 10)
    return spark


def records(start: int, end: int) -> list[tuple[str | None, str]]:
    return [(f"key {number}", f"{number}") for number in range(start, end)]


def copies_of(start: int, end: int) -> Copies:
    return Counter((each, f"key {n}".encode(), f"{n}".encode()) for n in range(start, end) for each in (0, 2))


def test_a_restarted_query_continues(spark: SparkSession, kafka_address: str, tmp_path: Path) -> None:
    source, target = create_topic(kafka_address, 1), create_topic(kafka_address, 3)
    frame = stream_of(spark, kafka_address, source, maxOffsetsPerTrigger=BATCH)

    def run() -> dict[str, int]:
        copies = multicast(frame, F.expr("array(0, 2)"), num_partitions=3, topic=target)
        return counted(drain(copies, kafka_address, target, tmp_path / "checkpoint"), target)

    fill(kafka_address, source, records(0, 250))
    assert run() == {"rows": 250, "dropped": 0, "records": 500}
    assert held(kafka_address, target) == copies_of(0, 250)
    fill(kafka_address, source, records(250, 300))
    assert run() == {"rows": 50, "dropped": 0, "records": 100}
    assert held(kafka_address, target) == copies_of(0, 300)


def test_after_a_failure_nothing_is_missing_and_only_the_failed_micro_batch_is_sent_again(
    spark: SparkSession, kafka_address: str, tmp_path: Path
) -> None:
    source, target = create_topic(kafka_address, 1), create_topic(kafka_address, 3)
    fill(kafka_address, source, records(0, 3 * BATCH))
    broken = tmp_path / "broken"
    broken.touch()

    def to_even(topic: str, key: str, value: str, num_partitions: int) -> list[int]:
        if int(value) == 2 * BATCH - 1 and broken.exists():
            raise OSError("failed on purpose, at the end of the second micro-batch")
        return [0, 2]

    def copies() -> DataFrame:
        frame = stream_of(spark, kafka_address, source, maxOffsetsPerTrigger=BATCH)
        return multicast(frame, to_even, num_partitions=3, topic=target)

    with pytest.raises(StreamingQueryException, match="failed on purpose"):
        drain(copies(), kafka_address, target, tmp_path / "checkpoint")
    broken.unlink()
    query = drain(copies(), kafka_address, target, tmp_path / "checkpoint")
    sent = held(kafka_address, target)
    assert set(sent) == set(copies_of(0, 3 * BATCH))
    again: Any = sent - copies_of(0, 3 * BATCH)
    assert again
    assert set(again) <= set(copies_of(BATCH, 2 * BATCH))
    assert max(again.values()) == ATTEMPTS
    assert counted(query, target) == {"rows": 2 * BATCH, "dropped": 0, "records": 4 * BATCH}


def test_a_task_that_runs_again_repeats_its_records_and_counts_rows_once(
    spark: SparkSession, kafka_address: str, tmp_path: Path
) -> None:
    source, target = create_topic(kafka_address, 1), create_topic(kafka_address, 3)
    fill(kafka_address, source, records(0, BATCH))

    def to_even(topic: str, key: str, value: str, num_partitions: int) -> list[int]:
        context = TaskContext.get()
        if int(value) == BATCH - 1 and context is not None and context.attemptNumber() == 0:
            raise OSError("failed on purpose, at the end of the first attempt")
        return [0, 2]

    frame = stream_of(spark, kafka_address, source)
    query = drain(multicast(frame, to_even, num_partitions=3, topic=target), kafka_address, target, tmp_path)
    sent = held(kafka_address, target)
    assert set(sent) == set(copies_of(0, BATCH))
    assert set(sent.values()) == {1, 2}
    assert counted(query, target) == {"rows": BATCH, "dropped": 0, "records": 2 * BATCH}
