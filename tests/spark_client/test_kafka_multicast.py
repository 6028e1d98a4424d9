"""Streams multicast to a real broker: each partition has exactly its copies, and a repeated micro-batch none lost."""

import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import (
    DataFrame,
    SparkSession,
    functions as F,  # noqa: N812 - its name everywhere
)

from scripts.bootstrap import ROOT
from spark_client.kafka_sessions import ATTEMPTS
from spark_client.kafka_streams import Copies, counted, drain, fill, held, stream_of
from spark_client.sessions import jvm
from support.kafka_topics import Received, create_topic, read, send
from tableside_spark import BROADCAST, DEFAULT, DROP, StreamPartitioner, default_partition, multicast

pytestmark = jvm("spark")

PAGE = (ROOT / "docs" / "multicast.md").read_text(encoding="utf-8")
ALERTS = [("EU", "storm"), ("US", "fog"), ("all", "strike"), (None, "noise"), ("Asia", "heat"), ("EU", "ice")]
BATCH = 100
MANY = 600
PARTITIONS = 7


def routing() -> StreamPartitioner:
    """Return a partitioner that reads the partitions of a record from its key."""

    class Routed(StreamPartitioner):
        def partitions(self, topic: str, key: str, value: str, num_partitions: int) -> Any:
            assert num_partitions == PARTITIONS
            match key.split():
                case ["even", _]:
                    return range(0, num_partitions, 2)
                case ["to", *listed]:
                    return [int(partition) for partition in listed]
                case [named, _]:
                    return {"all": BROADCAST, "none": DROP, "default": DEFAULT}[named]

    return Routed()


ROUTED = f"""
case split(key, ' ')[0] when 'even' then sequence(0, {PARTITIONS - 1}, 2)
                        when 'to' then cast(slice(split(key, ' '), 2, 100) as array<int>)
                        when 'all' then array(-1) when 'none' then array() else array(null) end
"""


def routed(seed: int) -> list[tuple[str, str]]:
    """Records for many partitions, few and none, with keys that repeat."""
    source = random.Random(seed)

    def key(number: int) -> str:
        listed = source.choices(range(PARTITIONS), k=source.randrange(1, 6))
        named = [f"{name} {number % 97}" for name in ("even", "all", "none", "default")]
        return source.choice([*named, " ".join(["to", *map(str, listed)])])

    return [(key(number), f"value {number}") for number in range(MANY)]


def expected(records: list[tuple[str, str]]) -> Copies:
    """Return the copies of a record, as its key defines them."""

    def partitions(key: str) -> set[int]:
        name, *rest = key.split()
        match name:
            case "to":
                return set(map(int, rest))
            case "default":
                return {default_partition(key, PARTITIONS)}
            case _:
                return set({"even": range(0, PARTITIONS, 2), "all": range(PARTITIONS), "none": range(0)}[name])

    return Counter((each, key.encode(), value.encode()) for key, value in records for each in partitions(key))


@pytest.mark.parametrize("in_python", [True, False])
def test_every_copy_of_many_records_is_in_its_partition_once(
    spark: SparkSession, kafka_address: str, tmp_path: Path, *, in_python: bool
) -> None:
    source, target = create_topic(kafka_address, 1), create_topic(kafka_address, PARTITIONS)
    records = routed(837)
    fill(kafka_address, source, records)
    frame = stream_of(spark, kafka_address, source, maxOffsetsPerTrigger=MANY * 3 // 8)
    partitions = routing() if in_python else F.expr(ROUTED)
    query = drain(
        multicast(frame, partitions, num_partitions=PARTITIONS, topic=target), kafka_address, target, tmp_path
    )
    everything = expected(records)
    dropped = sum(key.startswith("none") for key, _ in records)
    assert dropped > MANY // 8
    assert held(kafka_address, target) == everything
    assert counted(query, target) == {"rows": MANY, "dropped": dropped, "records": everything.total()}
    assert sum(progress.numInputRows > 0 for progress in query.recentProgress) == 3


def test_each_copy_has_the_headers_and_the_time_of_its_record(
    spark: SparkSession, kafka_address: str, tmp_path: Path
) -> None:
    source, target = create_topic(kafka_address, 1), create_topic(kafka_address, 3)
    headers = (("region", b"EU"), ("region", b"\x00\xff"), ("empty", b""))
    given = [Received(0, b"one", b"1", headers, 1_700_000_000_001), Received(0, b"two", b"2", (), 1_700_000_000_002)]
    send(kafka_address, source, given)
    stream = spark.readStream.format("kafka").option("kafka.bootstrap.servers", kafka_address)
    frame = stream.options(subscribe=source, startingOffsets="earliest", includeHeaders=True).load().drop("partition")
    copies = multicast(frame, lambda *_: [0, 2], num_partitions=3, topic=target)
    timed = copies.selectExpr("key", "string(unix_millis(timestamp)) value", "headers", "partition")
    drain(timed, kafka_address, target, tmp_path)
    found = {(each.partition, each.key, each.value, each.headers) for each in read(kafka_address, target)}
    times = {b"one": b"1700000000001", b"two": b"1700000000002"}
    assert found == {(number, each.key, times[each.key or b""], each.headers) for each in given for number in (0, 2)}
    assert len(read(kafka_address, target)) == 4


def test_a_record_without_a_key_arrives_once_in_a_partition_chosen_by_kafka(
    spark: SparkSession, kafka_address: str, tmp_path: Path
) -> None:
    source, target = create_topic(kafka_address, 1), create_topic(kafka_address, 3)
    values = [f"value {number}" for number in range(9)]
    fill(kafka_address, source, [(None, value) for value in values])
    frame = stream_of(spark, kafka_address, source)
    copies = multicast(frame, lambda topic, key, *_: DEFAULT if key is None else DROP, num_partitions=3, topic=target)
    query = drain(copies, kafka_address, target, tmp_path)
    assert Counter(each.value for each in read(kafka_address, target)) == Counter(map(str.encode, values))
    assert counted(query, target) == {"rows": 9, "dropped": 0, "records": 9}


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
