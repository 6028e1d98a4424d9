"""`writeStream.format("tableside")`: rows of a stream are put once. Within a task, a key's last row wins."""

import json
import os
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark_client.sessions import jvm, stored
from support.running import Service
from tableside_client import Client

pytestmark = jvm("spark")

ROWS, KEYS = 5_500, 5_100
"""More keys than a chunk has rows, so that a key occurs in several chunks of a task, and twice in one of them."""


@pytest.fixture
def events(tmp_path: Path) -> Path:
    directory = tmp_path / "events"
    directory.mkdir()
    for file in range(2):
        path = directory / f"{file}.json"
        numbers = [*range(ROWS), *range(ROWS - 10, ROWS)]
        rows = [{"k": f"k{n % KEYS}", "n": file * 100_000 + at} for at, n in enumerate(numbers)]
        path.write_text("\n".join(json.dumps(row) for row in rows))
        os.utime(path, (file, file))
    return directory


def reading(spark: SparkSession, events: Path) -> DataFrame:
    return spark.readStream.schema("k string, n long").option("maxFilesPerTrigger", 1).json(str(events))


def put(frame: DataFrame, service: Service, table: str, checkpoint: Path, mode: str = "append", **more: str) -> None:
    options = {"url": service.url, "table": table, "key": "k", "checkpointLocation": str(checkpoint), **more}
    writer = frame.writeStream.format("tableside").options(**options).outputMode(mode)
    writer.trigger(availableNow=True).start().awaitTermination(120)


def test_the_last_row_of_a_key_wins_and_late_tasks_change_nothing(
    spark: SparkSession, service: Service, events: Path, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    put(reading(spark, events), service, "format_stream", checkpoint)
    expected: dict[str, dict[str, int]] = {}
    for at, n in enumerate([*range(ROWS), *range(ROWS - 10, ROWS)]):
        expected[f"k{n % KEYS}"] = {"n": 100_000 + at}
    assert stored(service, "format_stream") == expected
    writer = json.loads((checkpoint / "metadata").read_text().splitlines()[-1])["id"]
    with Client(service.url) as client:
        late = client.table("format_stream").put("k1", {"n": -1}, token=(writer, 2**20 - 1))
    assert late.replayed
    assert stored(service, "format_stream") == expected


def test_unsupported_options_are_rejected(spark: SparkSession, service: Service, events: Path, tmp_path: Path) -> None:
    grouped = reading(spark, events).groupBy("k").count()
    for at, (frame, mode, more, match) in enumerate(
        [
            (grouped, "update", {}, "does not support Update mode"),
            (grouped, "complete", {}, "write them inside foreachBatch"),
            (reading(spark, events), "append", {"at_least_once": "perhaps"}, "is true or false"),
            (reading(spark, events), "append", {"token": "secret"}, "the option token is rejected"),
        ]
    ):
        with pytest.raises(Exception, match=match):
            put(frame, service, "format_refused", tmp_path / str(at), mode, **more)
