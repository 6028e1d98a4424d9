"""Rows are copied to their partitions, in batch frames and in streams."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark import TaskContext
from pyspark.sql import (
    Column,
    DataFrame,
    Observation,
    SparkSession,
    functions as F,  # noqa: N812 - its name everywhere
)
from pyspark.sql.functions import col, lit

from spark_client.sessions import jvm
from tableside_spark import BROADCAST, DEFAULT, DROP, DefaultPartitioner, StreamPartitioner, multicast
from tableside_spark.multicast import PARTITIONS_MAX

pytestmark = jvm("spark")


def answers() -> list[tuple[Any, str, list[int | None]]]:
    """The results of a partitioner, the same in SQL, and the resulting partitions out of 4."""
    return [
        (None, "cast(null as array<int>)", [0, 1, 2, 3]),
        (BROADCAST, "array(-1)", [0, 1, 2, 3]),
        ([-1, -1], "array(-1, -1)", [0, 1, 2, 3]),
        ([], "array()", []),
        (DROP, "array()", []),
        (DEFAULT, "array(null)", [None]),
        ([3], "array(3)", [3]),
        ([2, 0, 2, 2], "array(2, 0, 2, 2)", [0, 2]),
        ({1, 3}, "array(1, 3)", [1, 3]),
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
            assert (topic, num_partitions, key) == ("flights", 4, "k" + value)
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
    frame = numbers(spark, 1_000)
    copies = multicast(frame, partitions(), num_partitions=4, topic="flights", observed=observed)
    assert copies.columns == ["key", "value", "id", "partition"]
    assert copies.schema["partition"].dataType.simpleString() == "int"
    assert by_id(copies) == expected(1_000)
    assert observed.get == {"rows": 1_000, "dropped": 200, "records": expected(1_000).total()}


def test_values_reach_the_partitioner_as_python_objects(spark: SparkSession) -> None:
    frame = spark.sql("select 7L `the key`, named_struct('gate', 'B', 'stops', array(2, 1)) as `a.b`, 1 id")

    def stops(topic: str, key: int, value: dict[str, Any], num_partitions: int) -> list[int]:
        assert (key, value["gate"]) == (7, "B")
        return list(value["stops"])

    found = multicast(frame, stops, num_partitions=3, topic="t", key="the key", value="a.b")
    assert found.columns == ["the key", "a.b", "id", "partition"]
    assert by_id(found) == {(1, 2): 1, (1, 1): 1}


@pytest.mark.parametrize(
    ("partitions", "match"),
    [
        (lambda *_: [4], r"topic flights: partitions are 0 to 3, or -1 alone for all of them; a record is for 4"),
        (lambda *_: [True], r"topic flights: a partition is an int, not bool"),
        (lambda *_: 2, r"a partitioner returns a list, BROADCAST, DROP or DEFAULT, not int"),
        (lambda topic, *_: {}[topic], r"KeyError: 'flights'"),
        ("array(4)", r"topic flights: partitions are 0 to 3, or -1 alone for all of them; a record is for 4"),
        ("array(1, 4294967296)", r"a record is for 1, 4294967296"),
        ("array(-1, 0)", r"a record is for -1, 0"),
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
        ({"num_partitions": True}, "not bool"),
        ({"num_partitions": "4"}, "not str"),
        ({"topic": None}, "topic must be a string, not NoneType"),
        ({"topic": col("key")}, "topic must be a string, not Column"),
        ({"key": "nokey"}, "the frame has no column 'nokey'; it has key, value, id"),
        ({"value": "novalue"}, "no column 'novalue'"),
        ({"frame": frame.withColumn("Partition", lit(0))}, "two columns are named 'partition'"),
        ({"partitions": lit(1)}, "a column of partitions is array<int>, not int"),
        ({"partitions": F.array("key")}, "not array<string>"),
        ({"partitions": DefaultPartitioner}, "not the class DefaultPartitioner"),
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


def test_a_partitioner_is_called_once_for_each_row(spark: SparkSession, tmp_path: Path) -> None:
    asked = tmp_path / "asked"

    def remember(topic: str, key: str, value: str, num_partitions: int) -> list[int]:
        with asked.open("a", encoding="ascii") as file:
            file.write(f"{value}\n")
        return [0, 1]

    copies = multicast(numbers(spark, 100), remember, num_partitions=2, topic="t")
    assert copies.where("partition = 1 and id >= 50").select("partition", "id").count() == 50
    assert sorted(map(int, asked.read_text(encoding="ascii").split())) == list(range(100))


@pytest.mark.parametrize("partitions", [in_python, in_columns])
def test_a_stream_is_multicast_and_its_progress_counts(
    spark: SparkSession, tmp_path: Path, partitions: Callable[[], Any]
) -> None:
    for part in range(3):
        numbers(spark, 300).where(col("id") % 3 == part).coalesce(1).write.parquet(str(tmp_path / "in" / f"{part}"))
    stream = spark.readStream.schema("key string, value string, id long").option("maxFilesPerTrigger", 1)
    copies = multicast(stream.parquet(str(tmp_path / "in" / "*")), partitions(), num_partitions=4, topic="flights")
    name = f"copies_{partitions.__name__}"
    query = copies.writeStream.format("memory").queryName(name).trigger(availableNow=True).start()
    query.awaitTermination()
    assert by_id(spark.table(name)) == expected(300)
    counts = [progress["observedMetrics"]["multicast_flights"] for progress in query.recentProgress]
    totals = {field: sum(count[field] for count in counts) for field in ("rows", "dropped", "records")}
    assert len(counts) == 3
    assert totals == {"rows": 300, "dropped": 60, "records": expected(300).total()}
