"""`ttl_s` and `expires_at` as columns: each row sets the expiry of its record."""

import datetime as dt
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import (
    DataFrame,
    SparkSession,
    functions as F,  # noqa: N812 - its name everywhere
)
from pyspark.sql.functions import col

from documentation.blocks import blocks
from spark_client.sessions import jvm, stored
from spark_client.test_streams import finished, uncommitted
from support.consoles import SAID_URL
from support.running import Service, running
from tableside_client import Client
from tableside_spark import Table, TableWriteError, progress

pytestmark = jvm("spark")

DEFAULT_S = 5_000
NEVER, ABSENT = "never", "absent"
TOLERANCE_S = 120

CONFIG = {
    "stores": {"s": {"kind": "memory"}},
    "tables": {
        "types": {"store": "s", "ttl_s": DEFAULT_S},
        "formatted": {"store": "s", "ttl_s": DEFAULT_S},
        "replaced": {"store": "s", "generations": True},
    },
}


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    directory = tmp_path_factory.mktemp("row_expiry")
    (directory / "t.yaml").write_text(json.dumps(CONFIG))
    with running(directory, directory / "t.yaml") as service:
        yield service


def left_s(service: Service, table: str) -> dict[Any, Any]:
    """Return the seconds until each record of a table expires."""
    now = dt.datetime.now(dt.UTC)
    with Client(service.url) as client:
        times = {record.key: record.expires_at for record in client.table(table).scan()}
    return {
        key: NEVER if at is None else (dt.datetime.fromisoformat(at) - now).total_seconds() for key, at in times.items()
    }


def about(seconds: float | str) -> Any:
    """Return what equals the seconds until an expiry, give or take the time that a slow test takes."""
    return seconds if seconds == NEVER else pytest.approx(seconds, abs=TOLERANCE_S)


def save(frame: DataFrame, service: Service, table: str, **options: Any) -> None:
    frame.write.format("tableside").options(url=service.url, table=table, key="k", **options).mode("append").save()


IN_50_DAYS = dt.datetime.now(dt.UTC).replace(hour=0, minute=0, second=0, microsecond=0) + dt.timedelta(days=50)


@pytest.mark.parametrize(
    ("argument", "expression", "expected"),
    [
        ("ttl_s", "cast(2000 as smallint)", 2_000),
        ("ttl_s", "2000.25BD", 2_000),
        ("ttl_s", "-1", NEVER),
        ("ttl_s", "cast(null as int)", DEFAULT_S),
        ("ttl_s", "9223372036854775807L", NEVER),
        ("expires_at", "current_timestamp() + interval 2000 seconds", 2_000),
        ("expires_at", f"timestamp_ntz'{IN_50_DAYS:%Y-%m-%d %H:%M:%S}'", IN_50_DAYS),
        ("expires_at", f"date'{IN_50_DAYS:%Y-%m-%d}'", IN_50_DAYS),
        ("expires_at", "cast(null as timestamp)", DEFAULT_S),
        ("expires_at", "date_from_unix_date(2147483647)", NEVER),
        ("expires_at", "timestamp'0001-01-01 00:00:00Z'", ABSENT),
    ],
)
def test_a_column_sets_the_expiry_of_each_record(
    spark: SparkSession, tables: Service, argument: str, expression: str, expected: Any
) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "America/New_York"
    table, frame = Table("types", tables.url), spark.sql(f"select 'a' k, 1 n, {expression} until")
    arguments: dict[str, Any] = {argument: "until"}
    assert table.put(frame, "k", **arguments).applied == 1
    save(frame, tables, "formatted", **arguments)
    if isinstance(expected, dt.datetime):
        expected = (expected - dt.datetime.now(dt.UTC)).total_seconds()
    for name in (table.name, "formatted"):
        assert left_s(tables, name) == ({} if expected == ABSENT else {"a": about(expected)})
        assert stored(tables, name) == ({} if expected == ABSENT else {"a": {"n": 1}})


BAD = [("zero", 0.0), ("minus", -0.5), ("two", -2.0), ("nan", float("nan")), ("low", float("-inf"))]


def test_a_row_with_an_invalid_time_to_live_fails_alone(spark: SparkSession, service: Service) -> None:
    why = "ttl_s must be a number above 0, or -1 for no expiry"
    rows = spark.createDataFrame([*BAD, ("good", 2_000.0), ("null", None), ("inf", float("inf"))], "k string, t double")
    rows = rows.unionAll(rows.select("k", F.lit(3_000.0))).withColumn("n", F.lit(1))
    options: dict[str, Any] = {"order_by": F.isnan("t") | (col("t") != 3_000), "on_error": "collect", "ttl_s": "t"}
    for verb in ("put", "update"):
        table = Table(f"expiry_bad_{verb}", service.url)
        if verb == "put":
            done = table.put(rows, "k", columns=["n"], **options)
        else:
            done = table.update(rows, "k", set=["n"], default={}, **options)
        assert done.failures is not None
        failed = {(row.k, row.code, row.detail) for row in done.failures.collect()}
        assert failed == {(key, "invalid_operation", why) for key, _ in BAD}
        assert left_s(service, table.name) == {key: about(3_000) for key, _ in BAD} | {
            "good": about(2_000), "null": about(3_000), "inf": NEVER,
        }  # fmt: skip
    with pytest.raises(TableWriteError, match=why):
        table.put(rows, "k", ttl_s=0)
    with pytest.raises(Exception, match=why):
        save(rows.where("k = 'nan'"), service, table.name, ttl_s="t")


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"ttl_s": "n", "expires_at": "at"}, "ttl_s and expires_at cannot be combined"),
        ({"ttl_s": "k"}, "ttl_s is string: it must be a number of seconds"),
        ({"expires_at": "n"}, "expires_at is int: it must be a timestamp or a date"),
    ],
)
def test_invalid_arguments_are_refused_before_the_write(
    spark: SparkSession, service: Service, arguments: dict[str, Any], match: str
) -> None:
    frame = spark.sql("select 'a' k, 1 n, current_timestamp() at")
    with pytest.raises(ValueError, match=match):
        Table("expiry_refused", service.url).put(frame, "k", **arguments)
    with pytest.raises(Exception, match=match):
        save(frame, service, "expiry_refused", **arguments)


Event = tuple[str, int, bool, int | None, int]


def events(count: int) -> list[Event]:
    """Return rows of few keys in any order: key, time, whether it is a delete, time to live, and a number."""
    chance = random.Random(5)
    lives = [None, None, -1, *range(1_000, 9_000, 1_000)]
    return [
        (f"k{chance.randrange(15)}", at, chance.random() < 0.15, chance.choice(lives), at)
        for at in chance.sample(range(count), count)
    ]


def naive(rows: list[Event], *, puts: bool) -> dict[str, Any]:
    """Apply the rows in the order of their time, one after the other, and return the times to live."""
    found: dict[str, Any] = {}
    for key, _, is_delete, ttl_s, _ in sorted(rows, key=lambda row: row[1]):
        if is_delete:
            found.pop(key, None)
        elif ttl_s is not None:
            found[key] = NEVER if ttl_s == -1 else about(ttl_s)
        elif puts or key not in found:
            found[key] = NEVER
    return found


@pytest.mark.parametrize(
    ("verb", "order"),
    [
        *[("put", "order_by"), ("folded", "order_by"), ("listed", "order_by"), ("omitted", "order_by")],
        *[("put", "sequence_by"), ("omitted", "sequence_by")],
    ],
)
def test_rows_of_a_key_set_the_expiry_as_if_applied_one_after_the_other(
    spark: SparkSession, service: Service, verb: str, order: str
) -> None:
    rows, table = events(200), Table(f"expiry_rows_{verb}_{order}", service.url)
    options: dict[str, Any] = {order: "at", "ttl_s": "ttl", "delete_when": "gone"}
    halves = [rows[::2], rows[1::2]] if order == "sequence_by" else [rows]
    for half in halves:
        frame = spark.createDataFrame(half, "k string, at long, gone boolean, ttl int, n int")
        if verb == "put":
            done = table.put(frame, "k", columns=["n"], **options)
        else:
            ordered = order == "sequence_by"
            options["nulls"] = "omit" if verb == "omitted" else "write"
            more: dict[str, Any] = {} if ordered else {"default": {}, "fold": verb != "listed"}
            done = table.update(frame, "k", {"$set": {"n": col("n")}}, **options, **more)
        assert done.sent == len(half)
    assert left_s(service, table.name) == naive(rows, puts=verb == "put")
    last = {key: n for key, _, is_delete, _, n in sorted(rows, key=lambda row: row[1]) if not is_delete}
    assert stored(service, table.name) == {key: {"n": last[key]} for key in naive(rows, puts=True)}


def test_a_named_expiry_is_not_a_member_unless_it_is_listed(spark: SparkSession, tables: Service) -> None:
    table, frame = Table("types", tables.url), spark.sql("select 'a' k, 1 n, 2000 ttl")
    for columns, value in ((None, {"n": 1}), (["ttl"], {"ttl": 2000})):
        table.put(frame, "k", columns=columns, ttl_s="ttl")
        assert stored(tables, table.name) == {"a": value}
    save(frame, tables, table.name, ttl_s="3000")
    assert left_s(tables, table.name) == {"a": about(3_000)}
    Table("replaced", tables.url).replace(frame, "k", ttl_s="ttl")
    assert (stored(tables, "replaced"), left_s(tables, "replaced")) == ({"a": {"n": 1}}, {"a": about(2_000)})


@pytest.mark.parametrize("verb", ["update", "format"])
def test_a_late_stream_whose_records_have_expired_goes_on(
    spark: SparkSession, service: Service, tmp_path: Path, verb: str
) -> None:
    name, checkpoint = f"expiry_stream_{verb}", str(tmp_path / "checkpoint")
    now = dt.datetime.now(dt.UTC)
    times = {"past": now - dt.timedelta(days=3), "soon": now + dt.timedelta(seconds=2_000), "none": None}
    rows = [{"k": key, "n": 1, "until": time and time.isoformat()} for key, time in times.items()]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text("\n".join(map(json.dumps, rows)))
    stream = spark.readStream.schema("k string, n int, until timestamp").json(str(tmp_path / "in"))
    with Client(service.url) as client:
        client.table(name).load((key, {"n": 0}) for key in times)
    for _ in range(2):
        if verb == "format":
            options = {"url": service.url, "table": name, "key": "k", "expires_at": "until"}
            writer = stream.writeStream.format("tableside").options(**options, checkpointLocation=checkpoint)
            query = finished(writer.trigger(availableNow=True).start())
        else:
            update = {"$inc": {"n": col("n")}}
            counting = Table(name, service.url).update(stream, "k", update, expires_at="until", default={"n": 0})
            query = finished(counting.start(checkpoint, availableNow=True))
            assert sum(batch.failed for batch in progress(query)) == 0
        assert query.exception() is None
        assert stored(service, name) == {"soon": {"n": 1}, "none": {"n": 1}}
        assert left_s(service, name) == {"soon": about(2_000), "none": NEVER}
        uncommitted(tmp_path / "checkpoint")


def test_the_program_for_users_of_other_connectors(spark: SparkSession, service: Service) -> None:
    [program] = [block.text for block in blocks("docs/migrating.md") if "org.apache.spark.sql.redis" in block.text]
    people = spark.createDataFrame([("ada", 36), ("alan", 12)], "name string, age int")
    until = {"past": "timestamp'2020-01-01'", "future": "timestamp'2999-01-01'"}
    members = people.selectExpr("name", "age + 1 age", f"if(age > 18, {until['future']}, {until['past']}) valid_until")
    scope: dict[str, Any] = {"spark": spark, "people": people, "members": members}
    exec(program.replace(SAID_URL, service.url), scope)
    assert [tuple(row) for row in scope["adults"].collect()] == [("ada", 37)]
    assert stored(service, "person") == {"ada": {"age": 37}}
