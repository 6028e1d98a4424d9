"""Streams that copy a Kafka topic to another until its end."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from support.kafka_topics import Received, read, send

RUN_MAX_S = 120
Copies = Counter[tuple[int, bytes | None, bytes | None]]
"""The number of copies of each record, by partition, key and value."""


def fill(address: str, topic: str, records: Sequence[tuple[str | None, str]]) -> None:
    """Send keys and values to the first partition of a topic."""
    encoded = [(None if key is None else key.encode(), value.encode()) for key, value in records]
    send(address, topic, [Received(0, key, value) for key, value in encoded])


def stream_of(spark: SparkSession, address: str, topic: str, **options: str | int) -> DataFrame:
    """Return a topic as a stream of strings `key` and `value`."""
    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", address).option("subscribe", topic)
    read_from_start = source.option("startingOffsets", "earliest").options(**options)
    return read_from_start.load().selectExpr("string(key) key", "string(value) value")


def drain(copies: DataFrame, address: str, topic: str, checkpoint: Path, **options: str) -> StreamingQuery:
    """Write all available rows to a topic, and return the ended query."""
    sink = copies.writeStream.format("kafka").option("kafka.bootstrap.servers", address).option("topic", topic)
    located = sink.option("checkpointLocation", str(checkpoint)).options(**options)
    query = located.trigger(availableNow=True).start()
    assert query.awaitTermination(RUN_MAX_S)
    return query


def counted(query: StreamingQuery, topic: str) -> dict[str, int]:
    """Return the sums of `multicast`'s counts over all micro-batches of a query, since the last may be empty."""
    seen = [progress.observedMetrics[f"multicast_{topic}"].asDict() for progress in query.recentProgress]
    return {name: sum(metrics[name] for metrics in seen) for name in ("rows", "dropped", "records")}


def held(address: str, topic: str) -> Copies:
    """Return the current records of a topic."""
    return Counter((each.partition, each.key, each.value) for each in read(address, topic))
