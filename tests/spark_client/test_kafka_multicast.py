"""Streams multicast to a real broker: each partition has exactly its copies."""

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import (
    SparkSession,
    functions as F,  # noqa: N812 - its name everywhere
)

from spark_client.kafka_placement.keys import placed
from spark_client.kafka_streams import Copies, counted, drain, fill, held, stream_of
from support.kafka_topics import Received, create_topic, read, send
from tableside_spark import BROADCAST, DEFAULT, DROP, StreamPartitioner, default_partition, multicast

pytestmark = [
    pytest.mark.jvm,
    pytest.mark.xdist_group("spark"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

NINE = [(f"key {number}", f"value {number}") for number in range(9)]
MANY = 600
PARTITIONS = 7


def always(answer: Any) -> StreamPartitioner:
    """Return a partitioner with the same result for every record."""

    class Always(StreamPartitioner):
        def partitions(self, topic: str, key: str, value: str, num_partitions: int) -> Any:
            assert (num_partitions, key.removeprefix("key ")) == (3, value.removeprefix("value "))
            return answer

    return Always()


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


@pytest.mark.parametrize(
    ("answer", "column", "numbers"),
    [
        ([0, 2], "array(0, 2)", [0, 2]),
        (BROADCAST, "array(-1)", [0, 1, 2]),
        (DROP, "array()", []),
        (DEFAULT, "array(null)", None),
    ],
)
@pytest.mark.parametrize("in_python", [True, pytest.param(False, marks=pytest.mark.full)])
def test_nine_records_have_their_copies_in_three_partitions(
    spark: SparkSession, kafka_address: str, tmp_path: Path, *, answer: Any, column: str, numbers: Any, in_python: bool
) -> None:
    source, target = create_topic(kafka_address, 1), create_topic(kafka_address, 3)
    fill(kafka_address, source, NINE)
    partitions = always(answer) if in_python else F.expr(column)
    frame = stream_of(spark, kafka_address, source)
    query = drain(multicast(frame, partitions, num_partitions=3, topic=target), kafka_address, target, tmp_path)
    copies = [
        (number, key.encode(), value.encode())
        for key, value in NINE
        for number in ([default_partition(key, 3)] if numbers is None else numbers)
    ]
    assert held(kafka_address, target) == Counter(copies)
    assert counted(query, target) == {"rows": 9, "dropped": 9 if answer is DROP else 0, "records": len(copies)}


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


def test_the_default_partitions_of_500_keys_equal_kafkas_producer(
    spark: SparkSession, kafka_address: str, tmp_path: Path
) -> None:
    source, target = create_topic(kafka_address, 1), create_topic(kafka_address, 12)
    keys = [each.key for each in placed()]
    encoded = [key if isinstance(key, bytes) else key.encode() for key in keys]
    send(kafka_address, source, (Received(0, key, str(number).encode()) for number, key in enumerate(encoded)))
    stream = spark.readStream.format("kafka").option("kafka.bootstrap.servers", kafka_address)
    frame = stream.options(subscribe=source, startingOffsets="earliest").load().select("key", "value")
    copies = multicast(frame, F.expr("array(null)"), num_partitions=12, topic=target)
    drain(copies, kafka_address, target, tmp_path)
    found = {int(each.value or b""): each.partition for each in read(kafka_address, target)}
    assert len(found) == 500
    assert spark._jvm is not None
    kafkas = spark._jvm.org.apache.kafka.clients.producer.internals.BuiltInPartitioner
    assert found == {number: kafkas.partitionForKey(key, 12) for number, key in enumerate(encoded)}
    assert found == {number: default_partition(key, 12) for number, key in enumerate(keys)}
    assert set(found.values()) == set(range(12))


def test_a_record_without_a_key_arrives_once_in_a_partition_chosen_by_kafka(
    spark: SparkSession, kafka_address: str, tmp_path: Path
) -> None:
    source, target = create_topic(kafka_address, 1), create_topic(kafka_address, 3)
    fill(kafka_address, source, [(None, value) for _, value in NINE])
    frame = stream_of(spark, kafka_address, source)
    copies = multicast(frame, lambda topic, key, *_: DEFAULT if key is None else DROP, num_partitions=3, topic=target)
    query = drain(copies, kafka_address, target, tmp_path)
    assert Counter(each.value for each in read(kafka_address, target)) == Counter(value.encode() for _, value in NINE)
    assert counted(query, target) == {"rows": 9, "dropped": 0, "records": 9}


@pytest.mark.parametrize("partitions", [lambda: lambda *_: [0, 3], lambda: F.expr("array(0, 3)")])
def test_an_absent_partition_fails_the_query_before_sending(
    spark: SparkSession, kafka_address: str, tmp_path: Path, partitions: Any
) -> None:
    source, target = create_topic(kafka_address, 1), create_topic(kafka_address, 3)
    fill(kafka_address, source, NINE)
    copies = multicast(stream_of(spark, kafka_address, source), partitions(), num_partitions=3, topic=target)
    complaint = rf"topic {target}: partitions are 0 to 2, or -1 alone for all of them; a record is for (0, )?3"
    with pytest.raises(StreamingQueryException, match=complaint):
        drain(copies, kafka_address, target, tmp_path)
    assert read(kafka_address, target) == []


def test_more_partitions_than_the_topic_has_fail_the_query(
    spark: SparkSession, kafka_address: str, tmp_path: Path
) -> None:
    source, target = create_topic(kafka_address, 1), create_topic(kafka_address, 3)
    fill(kafka_address, source, NINE)
    copies = multicast(stream_of(spark, kafka_address, source), F.expr("array(4)"), num_partitions=5, topic=target)
    soon = {"kafka.max.block.ms": "2000"}
    with pytest.raises(StreamingQueryException, match=f"Partition 4 of topic {target} with partition count 3"):
        drain(copies, kafka_address, target, tmp_path, **soon)
    assert read(kafka_address, target) == []
