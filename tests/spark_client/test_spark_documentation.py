"""The programs of the pages about Spark and streams work in their order."""

import datetime as dt
import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import (
    SparkSession,
    functions as F,  # noqa: N812 - its name everywhere
)

from documentation.blocks import blocks
from spark_client.sessions import jvm, stored
from support.consoles import SAID_URL
from support.running import Service, running
from tableside_client import Client
from tableside_spark import Table

pytestmark = jvm("spark")

PAGE = "docs/spark.md"
PROGRAMS = [block.text for block in blocks(PAGE) if block.language == "python"]
UPDATE, ENRICH, EXPIRING, ORDERED, REPLACE, READ, COPY, FILTERED, LOOKED_UP = PROGRAMS
[SQL] = [block.text for block in blocks(PAGE) if block.language == "sql"]
MISMATCH, _ = [block.text for block in blocks(PAGE) if block.language == "text"]

CONFIG = """
stores: {memory: {kind: memory}}
tables:
  planes: {store: memory, key: {tailnum: string}, generations: true}
  profiles: {store: memory, key: {user_id: string}}
  readings: {store: memory, key: {sensor: string, at: integer}}
  readings_copy: {store: memory, key: {sensor: string, at: integer}}
  sessions: {store: memory, key: {visitor: string}}
  customers: {store: memory, key: {id: integer}}
"""


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    directory = tmp_path_factory.mktemp("spark_page")
    (directory / "tableside.yaml").write_text(CONFIG)
    with running(directory, directory / "tableside.yaml") as started:
        yield started


def run(program: str, service: Service, **names: Any) -> dict[str, Any]:
    """Run a program of the page after the imports of its first one."""
    scope: dict[str, Any] = {}
    exec(UPDATE.partition("planes = ")[0], scope)
    scope |= names
    exec(program.replace(SAID_URL, service.url), scope)
    return scope


@pytest.fixture
def flights(spark: SparkSession) -> Any:
    return spark.createDataFrame([("N725MQ", 100), ("N725MQ", 50), ("N1", 10)], "tailnum string, distance long")


def test_a_token_makes_the_update_repeatable(tables: Service, flights: Any) -> None:
    for _ in range(2):
        run(UPDATE, tables, flights=flights)
    with Client(tables.url) as client:
        assert client.table("planes").get("N725MQ") == {"flights": 2, "miles": 150}


def test_a_lookup_adds_columns_and_names_invalid_values(tables: Service, flights: Any) -> None:
    names = {"flights": flights, "planes": run("planes = Table('planes', url='" + SAID_URL + "')", tables)["planes"]}
    with Client(tables.url) as client:
        client.table("planes").put("N725MQ", {"manufacturer": "EMBRAER", "seats": 20})
        named = run(ENRICH, tables, **names)["named"]
        assert sorted(map(tuple, named.collect()))[1] == ("N725MQ", 50, "EMBRAER", 20)
        client.table("planes").put("N725MQ", {"manufacturer": "EMBRAER", "seats": "twenty"})
    with pytest.raises(Exception, match="table planes") as caught:
        named.collect()
    assert MISMATCH.strip() in str(caught.value)


def test_rows_set_the_expiry_of_their_records(tables: Service, spark: SparkSession) -> None:
    past, future = (dt.datetime(year, 1, 1, tzinfo=dt.UTC) for year in (2020, 2999))
    rows = [("a", "guest", past), ("b", "member", future)]
    visits = spark.createDataFrame(rows, "visitor string, kind string, valid_until timestamp")
    with Client(tables.url) as client:
        sessions = client.table("sessions")
        first, second = EXPIRING.splitlines()
        names = {"visits": visits, "sessions": Table(sessions.name, tables.url), "when": F.when}
        run(first, tables, **names)
        assert [(record.key, record.value) for record in sessions.scan()] == [("b", {"kind": "member"})]
        run(second, tables, **names)
        assert {record.key: record.expires_at is None for record in sessions.scan()} == {"a": False, "b": True}


def test_ordered_writes_leave_the_newest_rows(tables: Service, spark: SparkSession) -> None:
    kinds = "user_id string, event_time timestamp, page string, country string"
    noon = dt.datetime(2026, 11, 20, 12, tzinfo=dt.UTC)
    one, two = noon + dt.timedelta(hours=1), noon + dt.timedelta(hours=2)
    export = spark.createDataFrame([("ada", noon, "home", "uk"), ("grace", noon, "home", "us")], kinds)
    clicks = spark.createDataFrame([("ada", one, "shop", None), ("grace", one, None, "uk")], kinds)
    changes = spark.createDataFrame([("grace", two, None, "us"), ("ada", noon, None, "uk")], kinds)
    changes = changes.withColumn("op", F.lit("d"))
    for _ in range(2):
        run(ORDERED, tables, export=export, clicks=clicks, changes=changes)
        with Client(tables.url) as client:
            assert client.table("profiles").get("grace") is None
            assert client.table("profiles").get("ada") == {"page": "shop"}


def test_a_replaced_table_has_the_records_of_the_frame(tables: Service, spark: SparkSession) -> None:
    registry = spark.createDataFrame([("N1", 4), ("N2", 6)], "tailnum string, seats int")
    planes = run("planes = Table('planes', url='" + SAID_URL + "')", tables)["planes"]
    run(REPLACE, tables, registry=registry, planes=planes)
    with Client(tables.url) as client:
        found = {record.key: record.value for record in client.table("planes").scan()}
        assert found == {"N1": {"seats": 4}, "N2": {"seats": 6}}
        assert client.table("planes").generations()[-1].note == "registry/2026-11-20"


def test_the_format_reads_a_partition(tables: Service, spark: SparkSession) -> None:
    with Client(tables.url) as client:
        client.table("readings").load([(("sensor-7", 2), {"n": 2}), (("sensor-7", 1), {"n": 1}), (("sensor-8", 1), {})])
    pairs = run(READ, tables, spark=spark)["pairs"]
    assert sorted((row["sensor"], row["at"]) for row in pairs.collect()) == [("sensor-7", 1), ("sensor-7", 2)]


def test_a_table_is_copied_and_has_a_view(tables: Service, spark: SparkSession) -> None:
    with Client(tables.url) as client:
        client.table("readings").put(("sensor-9", 1), {"n": 9})
        run(COPY, tables, spark=spark)
        assert client.table("readings_copy").get(("sensor-9", 1)) == {"n": 9}
    create, select = SQL.replace(SAID_URL, tables.url).strip().split(";")[:2]
    spark.sql(create)
    assert '{"n":9}' in {row["value"] for row in spark.sql(select).collect()}
    spark.sql("DROP VIEW readings")


@pytest.mark.parametrize("program", [FILTERED, LOOKED_UP])
def test_records_are_read_by_their_keys(tables: Service, spark: SparkSession, program: str) -> None:
    with Client(tables.url) as client:
        client.table("customers").load([(400001, {"name": "Ada"}), (400003, {"name": "Grace"})])
    *_, last = program.strip().splitlines()
    shown = program.replace(last, f"found = {last}")
    try:
        found = run(shown, tables, spark=spark)["found"]
        assert [row["name"] for row in found.collect()] == ["Ada"]
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


# The programs of docs/streaming.md.

STREAMING = [block.text for block in blocks("docs/streaming.md") if block.language == "python"]
COUNTING, EACH_BATCH, CHANGES, LETTERS = STREAMING


def run_stream(program: str, service: Service, directory: Path, **names: Any) -> dict[str, Any]:
    """Run a program of the page on this service and in this directory, to its end."""
    text = program.replace(SAID_URL, service.url).replace("/checkpoints", str(directory))
    text = text.replace('processingTime="10 seconds"', "availableNow=True")
    text = text.replace(".start()", ".trigger(availableNow=True).start()")
    scope: dict[str, Any] = {"col": F.col, "lit": F.lit, "Table": Table, **names}
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
    scope = run_stream(COUNTING, service, tmp_path, events=events)
    scope["query"].awaitTermination(120)
    assert stored(service, "aircraft_seen")["N0"] == {
        "flights": 10, "miles": sum(range(0, 30, 3)), "last_seen": 27, "destinations": ["D0", "D1"],
    }  # fmt: skip
    [batch] = scope["progress"](scope["query"])
    assert (batch.applied, batch.operations) == (30, 3)


def test_several_tables_inside_foreach_batch(service: Service, events: Any, tmp_path: Path) -> None:
    counts, airports = Table("page_counts", service.url), Table("page_airports", service.url)
    run_stream(EACH_BATCH, service, tmp_path, events=events, counts=counts, airports=airports)[
        "query"
    ].awaitTermination(120)
    assert stored(service, "page_counts") == {"N0": {"flights": 10}, "N1": {"flights": 10}}
    assert stored(service, "page_airports") == {"D0": {"time": 28}, "D1": {"time": 29}}


def test_a_stream_of_changes(spark: SparkSession, service: Service, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    feed = [("1", "new", 5, 1, "insert"), ("2", "new", 6, 2, "insert"), ("1", "paid", 5, 3, "update"),
            ("2", None, None, 4, "delete")]  # fmt: skip
    schema = "order_id string, status string, total long, lsn long, op string"
    spark.createDataFrame(feed, schema).write.mode("overwrite").json(str(tmp_path / "feed"))
    stream = spark.readStream.schema(schema).json(str(tmp_path / "feed"))
    copying = run_stream(CHANGES, service, tmp_path, feed=stream)["copying"]
    copying.start(str(tmp_path / "checkpoint"), availableNow=True).awaitTermination(120)
    assert stored(service, "orders") == {"1": {"status": "paid", "total": 5}}


def test_failed_rows_are_dead_letters(spark: SparkSession, service: Service, events: Any, tmp_path: Path) -> None:
    aircraft = Table("page_known", service.url)
    aircraft.put(spark.createDataFrame([("N0", 0)], "tailnum string, flights int"), "tailnum")
    counting = run_stream(LETTERS, service, tmp_path, events=events, aircraft=aircraft)["counting"]
    counting.start(str(tmp_path / "checkpoint"), availableNow=True).awaitTermination(120)
    assert stored(service, "page_known") == {"N0": {"flights": 10}}
    letters = stored(service, "aircraft_letters").values()
    assert sorted(letter["key"] for letter in letters) == ['{"tailnum":"N1"}'] * 10 + ['{"tailnum":"N2"}'] * 10
