"""The programs of docs/change-data-capture.md end with the table that a naive replay in the right order gives."""

import json
import random
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from documentation.blocks import blocks
from spark_client.sessions import jvm, stored
from support.consoles import SAID_URL
from support.kafka_topics import Received, create_topic, send
from support.running import Service

pytestmark = jvm("spark")

DEBEZIUM, AUTO_CDC = [block.text for block in blocks("docs/change-data-capture.md") if block.language == "python"]
Row = dict[str, Any]

CHANGES = [(1, "r"), (2, "r"), (3, "r"), (2, "u"), (1, "d"), (4, "c"), (3, "u"), (1, "c"), (2, "d"), (4, "u"), (3, "d")]
"""The keys and operations of a snapshot and the changes after it, in the order of their LSN."""


def changes() -> list[Row]:
    """Return the changes with the columns of the source at that time: it has an address only later."""
    rows: dict[int, Row | None] = {}
    found: list[Row] = []
    for lsn, (key, op) in enumerate(CHANGES):
        row: Row = {"id": key, "name": f"name {lsn}"} | ({"address": {"city": f"city {lsn}"}} if lsn > 5 else {})
        after = None if op == "d" else row
        found.append({"id": key, "op": op, "before": rows.get(key), "after": after, "lsn": lsn})
        rows[key] = after
    return found


def naive(rows: list[Row]) -> dict[str, Row]:
    """Return the rows of the source after its changes."""
    last = {row["id"]: row["after"] for row in rows}
    return {str(key): after for key, after in last.items() if after is not None}


def arriving(rows: list[Row]) -> list[Row]:
    """Return the rows in another order, and some of them again."""
    chance = random.Random(3)
    return [*chance.sample(rows, len(rows)), *chance.sample(rows, 4)]


def messages(rows: list[Row]) -> list[Received]:
    """Return the messages of Debezium. A tombstone follows each delete."""
    found = []
    for row in rows:
        key = json.dumps({"id": row["id"]}).encode()
        source = {"connector": "postgresql", "lsn": row["lsn"]}
        envelope = {name: row[name] for name in ("op", "before", "after")} | {"ts_ms": 1, "source": source}
        found.append(Received(0, key, json.dumps(envelope).encode()))
        if row["op"] == "d":
            found.append(Received(0, key, None))
    return found


def run(program: str, service: Service, **names: Any) -> dict[str, Any]:
    scope = dict(names)
    exec(program.replace(SAID_URL, service.url), scope)
    return scope


def test_a_stream_of_debezium_equals_a_naive_replay(
    spark: SparkSession, service: Service, kafka_address: str, tmp_path: Path
) -> None:
    topic, rows = create_topic(kafka_address, 1), changes()
    program = DEBEZIUM.replace("kafka:9092", kafka_address).replace("shop.public.customers", topic)
    program = program.replace("/checkpoints", str(tmp_path)).replace('processingTime="10 seconds"', "availableNow=True")
    for part, expected in ((rows[::2], naive(rows[::2])), (arriving(rows), naive(rows))):
        send(kafka_address, topic, messages(part))
        query = run(program, service, spark=spark)["query"]
        assert query.awaitTermination(120)
        assert query.exception() is None
        assert stored(service, "customers") == expected


def test_a_frame_of_auto_cdc_equals_a_naive_replay(spark: SparkSession, service: Service) -> None:
    rows = changes()
    for part in (rows[1::2], arriving(rows)):
        feed = []
        for row in part:
            operation, name = ("UPSERT", row["after"]["name"]) if row["after"] else ("DELETE", None)
            feed.append((str(row["id"]), row["lsn"], operation, name))
        frame = spark.createDataFrame(feed, "userId string, sequenceNum long, operation string, name string")
        run(AUTO_CDC, service, feed=frame.selectExpr("*", "upper(name) city"))
    expected = {key: {"name": row["name"], "city": row["name"].upper()} for key, row in naive(rows).items()}
    assert stored(service, "users") == expected
