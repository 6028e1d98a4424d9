"""Create, fill and read topics of the shared Kafka broker, without Spark."""

import time
import uuid
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic

from support.waiting import WAIT_MAX_S

POLL_MS = 200


@dataclass(frozen=True, slots=True)
class Received:
    """A record of a topic. `headers` are in order, `timestamp_ms` counts from 1970."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()
    timestamp_ms: int = 0


def create_topic(address: str, partitions: int, name: str | None = None) -> str:
    """Create a topic and return its name, a unique one by default."""
    name = name or f"topic-{uuid.uuid4().hex}"
    with closing(KafkaAdminClient(bootstrap_servers=address)) as admin:
        kept = {"retention.ms": "-1"}  # tests send records with old timestamps, which the broker would soon delete
        admin.create_topics([NewTopic(name, partitions, 1, topic_configs=kept)])
    return name


def send(address: str, topic: str, records: Iterable[Received]) -> None:
    """Send records to the topics and partitions that they name. Return when the broker has acknowledged them."""
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
            each.get(WAIT_MAX_S)


def read(address: str, topic: str) -> list[Received]:
    """Return all current records of the topic, each partition in its order."""
    with closing(KafkaConsumer(bootstrap_servers=address, enable_auto_commit=False)) as consumer:
        partitions = [TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic) or ()]
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        ends = consumer.end_offsets(partitions)
        found: list[Any] = []
        until = time.monotonic() + WAIT_MAX_S
        while any(consumer.position(partition) < end for partition, end in ends.items()):
            assert time.monotonic() < until, f"only {len(found)} records could be read"
            found += [record for records in consumer.poll(POLL_MS).values() for record in records]
    return [Received(each.partition, each.key, each.value, tuple(each.headers), each.timestamp) for each in found]
