"""The programs of docs/streaming.md work."""

import json
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, lit

from scripts.bootstrap import ROOT
from spark_client.sessions import jvm, stored
from support.running import Service
from tableside_spark import Table

pytestmark = jvm("spark")

TEXT = (ROOT / "docs" / "streaming.md").read_text(encoding="utf-8")
COUNTING, EACH_BATCH, CHANGES, LETTERS = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


def run(program: str, service: Service, directory: Path, **names: Any) -> dict[str, Any]:
    """Run a program of the page on this service and in this directory, to its end."""
    text = program.replace("http://127.0.0.1:8080", service.url).replace("/checkpoints", str(directory))
    text = text.replace('processingTime="10 seconds"', "availableNow=True")
    text = text.replace(".start()", ".trigger(availableNow=True).start()")
    scope: dict[str, Any] = {"col": col, "lit": lit, "Table": Table, **names}
    exec(textwrap.dedent(text), scope)
    return scope


@pytest.fixture
def events(spark: SparkSession, tmp_path: Path) -> Any:
    (tmp_path / "in").mkdir()
    rows = [
        {"tailnum": f"N{at % 3}", "distance": at, "time": at, "dest": f"D{at % 2}", "retired": at % 3 == 2}
        for at in range(30)
    ]
    (tmp_path / "in" / "1.json").write_text("\n".join(map(json.dumps, rows)))
    kinds = "tailnum string, distance long, time long, dest string, retired boolean"
    return spark.readStream.schema(kinds).json(str(tmp_path / "in"))


def test_an_update_of_a_stream(service: Service, events: Any, tmp_path: Path) -> None:
    scope = run(COUNTING, service, tmp_path, events=events)
    scope["query"].awaitTermination(120)
    assert stored(service, "aircraft_seen")["N0"] == {
        "flights": 10, "miles": sum(range(0, 30, 3)), "last_seen": 27, "destinations": ["D0", "D1"],
    }  # fmt: skip
    [batch] = scope["progress"](scope["query"])
    assert (batch.applied, batch.operations) == (30, 3)


def test_several_tables_inside_foreach_batch(service: Service, events: Any, tmp_path: Path) -> None:
    counts, airports = Table("page_counts", service.url), Table("page_airports", service.url)
    run(EACH_BATCH, service, tmp_path, events=events, counts=counts, airports=airports)["query"].awaitTermination(120)
    assert stored(service, "page_counts") == {"N0": {"flights": 10}, "N1": {"flights": 10}}
    assert stored(service, "page_airports") == {"D0": {"time": 28}, "D1": {"time": 29}}


def test_a_stream_of_changes(spark: SparkSession, service: Service, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    feed = [("1", "new", 5, 1, "insert"), ("2", "new", 6, 2, "insert"), ("1", "paid", 5, 3, "update"),
            ("2", None, None, 4, "delete")]  # fmt: skip
    schema = "order_id string, status string, total long, lsn long, op string"
    spark.createDataFrame(feed, schema).write.mode("overwrite").json(str(tmp_path / "feed"))
    stream = spark.readStream.schema(schema).json(str(tmp_path / "feed"))
    copying = run(CHANGES, service, tmp_path, feed=stream)["copying"]
    copying.start(str(tmp_path / "checkpoint"), availableNow=True).awaitTermination(120)
    assert stored(service, "orders") == {"1": {"status": "paid", "total": 5}}


def test_failed_rows_are_dead_letters(spark: SparkSession, service: Service, events: Any, tmp_path: Path) -> None:
    aircraft = Table("page_known", service.url)
    aircraft.put(spark.createDataFrame([("N0", 0)], "tailnum string, flights int"), "tailnum")
    counting = run(LETTERS, service, tmp_path, events=events, aircraft=aircraft)["counting"]
    counting.start(str(tmp_path / "checkpoint"), availableNow=True).awaitTermination(120)
    assert stored(service, "page_known") == {"N0": {"flights": 10}}
    letters = stored(service, "aircraft_letters").values()
    assert sorted(letter["key"] for letter in letters) == ['{"tailnum":"N1"}'] * 10 + ['{"tailnum":"N2"}'] * 10
