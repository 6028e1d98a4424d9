"""Rows are copied to their partitions, in batch frames and in streams to a real broker."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark import TaskContext
from pyspark.errors import StreamingQueryException
from pyspark.sql import (
    Column,
    DataFrame,
    Observation,
    SparkSession,
    functions as F,  # noqa: N812 - its name everywhere
)
from pyspark.sql.functions import col, lit
from pyspark.sql.streaming.query import StreamingQuery

from scripts.bootstrap import ROOT
from spark_client.sessions import ATTEMPTS, jvm
from support.kafka_topics import Received, create_topic, read, send
from tableside_spark import BROADCAST, DEFAULT, DROP, StreamPartitioner, default_partition, multicast
from tableside_spark.multicast import PARTITIONS_MAX

pytestmark = jvm("spark")


def answers() -> list[tuple[Any, str, list[int | None]]]:
    """The results of a partitioner, the same in SQL, and the resulting partitions out of 4."""
    return [
        (None, "cast(null as array<int>)", [0, 1, 2, 3]),
        (BROADCAST, "array(-1)", [0, 1, 2, 3]),
        (DROP, "array()", []),
        (DEFAULT, "array(null)", [None]),
        ([3], "array(3)", [3]),
        ([2, 0, 2, 2], "array(2, 0, 2, 2)", [0, 2]),
        (range(1, 4), "sequence(1, 3)", [1, 2, 3]),
    ]


def numbers(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(0, count, numPartitions=3).select(
        F.concat(lit("k"), "id").alias("key"), col("id").cast("string").alias("value"), "id"
    )


def by_id(frame: DataFrame) -> Counter[tuple[int, int | None]]:
    return Counter((row.id, row.partition) for row in frame.select("id", "partition").collect())


def expected(count: int) -> Counter[tuple[int, int | None]]:
    follows = [partitions for _, _, partitions in answers()]
    return Counter((number, partition) for number in range(count) for partition in follows[number % len(follows)])


def in_python() -> StreamPartitioner:
    said = [answer for answer, _, _ in answers()]

    class Cycling(StreamPartitioner):
        def partitions(self, topic: str, key: Any, value: Any, num_partitions: int) -> Any:
            assert (num_partitions, key) == (4, "k" + value)
            return said[int(value) % len(said)]

    return Cycling()


def in_columns() -> Column:
    cases = [f"when {number} then {sql}" for number, (_, sql, _) in enumerate(answers())]
    return F.expr(f"case id % {len(cases)} {' '.join(cases)} end")


@pytest.mark.parametrize("partitions", [in_python, in_columns])
def test_every_kind_of_answer_has_its_copies_and_every_row_is_counted(
    spark: SparkSession, partitions: Callable[[], Any]
) -> None:
    observed = Observation("sent")
    frame = numbers(spark, 700)
    copies = multicast(frame, partitions(), num_partitions=4, topic="flights", observed=observed)
    assert copies.columns == ["key", "value", "id", "partition"]
    assert copies.schema["partition"].dataType.simpleString() == "int"
    assert by_id(copies) == expected(700)
    assert observed.get == {"rows": 700, "dropped": 100, "records": expected(700).total()}


@pytest.mark.parametrize(
    ("partitions", "match"),
    [
        (lambda *_: [4], r"topic flights: partitions are 0 to 3, or -1 alone for all of them; a record is for 4"),
        (lambda topic, *_: {}[topic], r"KeyError: 'flights'"),
        ("array(4)", r"topic flights: partitions are 0 to 3, or -1 alone for all of them; a record is for 4"),
        ("array(-1, 4294967296)", r"a record is for -1, 4294967296"),
        ("array(null, 0)", r"a record is for null, 0"),
    ],
)
def test_a_wrong_answer_fails_the_job_and_shows_no_record(spark: SparkSession, partitions: Any, match: str) -> None:
    frame = spark.sql("select 'geheim' key, 'geheimer' value")
    given = F.expr(partitions) if isinstance(partitions, str) else partitions
    with pytest.raises(Exception, match=match) as failure:
        multicast(frame, given, num_partitions=4, topic="flights").collect()
    assert "geheim" not in str(failure.value)


def test_invalid_plans_are_rejected_on_the_driver(spark: SparkSession) -> None:
    frame = numbers(spark, 3)
    refusals: list[tuple[dict[str, Any], str]] = [
        ({"num_partitions": 0}, "num_partitions is 1 to 100000, not 0"),
        ({"num_partitions": PARTITIONS_MAX + 1}, "not 100001"),
        ({"topic": col("key")}, "topic must be a string, not Column"),
        ({"key": "nokey"}, "the frame has no column 'nokey'; it has key, value, id"),
        ({"frame": frame.withColumn("Partition", lit(0))}, "two columns are named 'partition'"),
        ({"partitions": lit(1)}, "a column of partitions is array<int>, not int"),
    ]
    for change, match in refusals:
        usual: dict[str, Any] = {"frame": frame, "partitions": lambda *_: None, "num_partitions": 4, "topic": "t"}
        with pytest.raises((TypeError, ValueError), match=match):
            multicast(**(usual | change))
    multicast(frame, lambda *_: None, num_partitions=PARTITIONS_MAX, topic="t")


def test_failed_tasks_and_repeated_plans_count_rows_once(spark: SparkSession, tmp_path: Path) -> None:
    failed = tmp_path / "failed"

    def failing_at_first(topic: str, key: str, value: str, num_partitions: int) -> list[int]:
        context = TaskContext.get()
        assert context is not None
        if context.attemptNumber() == 0 and value in ("299", "999"):
            with failed.open("a", encoding="ascii") as file:
                file.write(f"{value}\n")
            raise RuntimeError("failed on purpose, after many rows")
        return [0, 1] if int(value) % 4 else []

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "50")  # so that many batches precede the failure
    frame = numbers(spark, 1_000)
    for again in (False, True):
        observed = Observation()
        copies = multicast(frame, failing_at_first, num_partitions=2, topic="t", observed=observed)
        ordered = copies.orderBy("id", "partition") if again else copies
        assert len(ordered.collect()) == 1_500
        assert observed.get == {"rows": 1_000, "dropped": 250, "records": 1_500}
        assert set(failed.read_text(encoding="ascii").split()) == {"299", "999"}
        failed.unlink()
    spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


PAGE = (ROOT / "docs" / "multicast.md").read_text(encoding="utf-8")
ALERTS = [("EU", "storm"), ("US", "fog"), ("all", "strike"), ("Asia", "heat"), ("EU", "ice")]
BATCH = 100
MANY = 560


RUN_MAX_S = 120
Copies = Counter[tuple[int, bytes | None, bytes | None]]
"""The number of copies of each record, by partition, key and value."""


def fill(address: str, topic: str, records: Sequence[tuple[str, str]]) -> None:
    """Send keys and values to the first partition of a topic."""
    encoded = [(key.encode(), value.encode()) for key, value in records]
    send(address, topic, [Received(0, key, value) for key, value in encoded])


def stream_of(spark: SparkSession, address: str, topic: str, **options: str | int) -> DataFrame:
    """Return a topic as a stream of strings `key` and `value`."""
    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", address).option("subscribe", topic)
    read_from_start = source.option("startingOffsets", "earliest").options(**options)
    return read_from_start.load().selectExpr("string(key) key", "string(value) value")


def drain(copies: DataFrame, address: str, topic: str, checkpoint: Path) -> StreamingQuery:
    """Write all available rows to a topic, and return the ended query."""
    sink = copies.writeStream.format("kafka").option("kafka.bootstrap.servers", address).option("topic", topic)
    query = sink.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    assert query.awaitTermination(RUN_MAX_S)
    return query


def counted(query: StreamingQuery, topic: str) -> dict[str, int]:
    """Return the sums of `multicast`'s counts over all micro-batches of a query, since the last may be empty."""
    seen = [progress.observedMetrics[f"multicast_{topic}"].asDict() for progress in query.recentProgress]
    return {name: sum(metrics[name] for metrics in seen) for name in ("rows", "dropped", "records")}


def held(address: str, topic: str) -> Copies:
    """Return the current records of a topic."""
    return Counter((each.partition, each.key, each.value) for each in read(address, topic))


@pytest.mark.parametrize("partitions", [in_python, in_columns])
def test_every_copy_of_many_records_is_in_its_partition_once(
    spark: SparkSession, kafka_address: str, tmp_path: Path, partitions: Callable[[], Any]
) -> None:
    source, target = create_topic(kafka_address, 1), create_topic(kafka_address, 4)
    fill(kafka_address, source, [(f"k{number}", f"{number}") for number in range(MANY)])
    frame = stream_of(spark, kafka_address, source, maxOffsetsPerTrigger=MANY * 3 // 8)
    frame = frame.selectExpr("*", "bigint(value) id")
    copies = multicast(frame, partitions(), num_partitions=4, topic=target).drop("id")
    query = drain(copies, kafka_address, target, tmp_path)
    everything: Copies = Counter()
    for (number, partition), count in expected(MANY).items():
        key = f"k{number}"
        place = default_partition(key, 4) if partition is None else partition
        everything[place, key.encode(), f"{number}".encode()] += count
    assert held(kafka_address, target) == everything
    assert counted(query, target) == {"rows": MANY, "dropped": MANY // 7, "records": everything.total()}
    assert sum(progress.numInputRows > 0 for progress in query.recentProgress) == 3


def both(start: int, end: int) -> Copies:
    """Return the copies of numbered records in the partitions 0 and 2."""
    return Counter((each, f"key {n}".encode(), f"{n}".encode()) for n in range(start, end) for each in (0, 2))


def test_after_a_failure_nothing_is_missing_and_only_the_failed_micro_batch_is_sent_again(
    spark: SparkSession, kafka_address: str, tmp_path: Path
) -> None:
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", BATCH // 10)  # Some precede the failure.
    source, target = create_topic(kafka_address, 1), create_topic(kafka_address, 3)
    fill(kafka_address, source, [(f"key {number}", f"{number}") for number in range(3 * BATCH)])
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
    assert set(sent) == set(both(0, 3 * BATCH))
    again: Any = sent - both(0, 3 * BATCH)
    assert again
    assert set(again) <= set(both(BATCH, 2 * BATCH))
    assert max(again.values()) == ATTEMPTS
    assert counted(query, target) == {"rows": 2 * BATCH, "dropped": 0, "records": 4 * BATCH}


def test_the_program_sends_each_alert_to_the_documented_partitions(
    spark: SparkSession, kafka_address: str, tmp_path: Path
) -> None:
    source, target = create_topic(kafka_address, 1), create_topic(kafka_address, 12, name="alerts")
    fill(kafka_address, source, ALERTS)
    program = "\n".join(re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)[:2])
    for said, here in {"broker:9092": kafka_address, "/checkpoints/alerts": str(tmp_path)}.items():
        assert program.count(f'"{said}"') == 1
        program = program.replace(said, here)
    names: dict[str, Any] = {"__name__": "__main__", "alerts": stream_of(spark, kafka_address, source)}
    exec(program, names)
    try:
        names["query"].processAllAvailable()
    finally:
        names["query"].stop()
    copies = [
        *((number, b"EU", value) for number in (0, 3) for value in (b"storm", b"ice")),
        (1, b"US", b"fog"),
        *((number, b"all", b"strike") for number in range(12)),
        (default_partition("Asia", 12), b"Asia", b"heat"),
    ]
    assert held(kafka_address, target) == Counter(copies)
