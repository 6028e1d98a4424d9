"""Topics of a Kafka that tests share: made, filled and read to their end, without Spark."""

import time
import uuid
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic

READ_MAX_S = 60.0
POLL_MS = 200


@dataclass(frozen=True, slots=True)
class Received:
    """A record as a topic holds it; `headers` in their order, `timestamp_ms` since 1970."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()
    timestamp_ms: int = 0


def create_topic(address: str, partitions: int, name: str | None = None) -> str:
    """Make a topic and return its name: one that nobody else has, unless it is given."""
    name = name or f"topic-{uuid.uuid4().hex}"
    with closing(KafkaAdminClient(bootstrap_servers=address)) as admin:
        admin.create_topics([NewTopic(name, partitions, 1)])
    return name


def send(address: str, topic: str, records: Iterable[Received]) -> None:
    """Send records to where they say; return when the broker has them."""
    with closing(KafkaProducer(bootstrap_servers=address)) as producer:
        sent = [
            producer.send(
                topic,
                record.value,
                record.key,
                list(record.headers),
                partition=record.partition,
                timestamp_ms=record.timestamp_ms or None,
            )
            for record in records
        ]
        for each in sent:
            each.get(READ_MAX_S)


def read(address: str, topic: str) -> list[Received]:
    """Return all that the topic holds now, each partition in its order."""
    with closing(KafkaConsumer(bootstrap_servers=address, enable_auto_commit=False)) as consumer:
        partitions = [TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic) or ()]
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        ends = consumer.end_offsets(partitions)
        found: list[Any] = []
        until = time.monotonic() + READ_MAX_S
        while any(consumer.position(partition) < end for partition, end in ends.items()):
            assert time.monotonic() < until, f"{len(found)} records read, and not all"
            found += [record for records in consumer.poll(POLL_MS).values() for record in records]
    return [Received(each.partition, each.key, each.value, tuple(each.headers), each.timestamp) for each in found]
