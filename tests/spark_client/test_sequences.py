"""Ordered writes from Spark: the newest row wins, whatever arrives last."""

import datetime as dt
import json
import os
import random
from collections.abc import Callable, Iterable
from functools import partial
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import (
    DataFrame,
    SparkSession,
    functions as F,  # noqa: N812 - its name everywhere
)
from pyspark.sql.functions import col, lit

from spark_client.sessions import jvm, stored
from spark_client.test_streams import finished, uncommitted
from support.running import Service
from tableside_client import Client
from tableside_spark import Table, TableWriteError, progress

pytestmark = jvm("spark")

Event = dict[str, Any]

SCHEMA = "k string, at long, gone boolean, a int, b string, c int, tie int"


def events(count: int, seed: int = 7) -> list[Event]:
    """Return events in any order: few keys and sequences, equal sequences with different `tie`, and nulls."""
    chance = random.Random(seed)
    return [
        {
            "k": f"k{chance.randrange(20)}",
            "at": chance.randrange(20),
            "gone": chance.random() < 0.2,
            "a": chance.choice([None, tie]),
            "b": chance.choice([None, None, f"b{tie}"]),
            "c": chance.choice([None, None, None, tie]),
            "tie": tie,
        }
        for tie in range(count)
    ]


def in_order(rows: Iterable[Event]) -> list[Event]:
    return sorted(rows, key=lambda row: (row["at"], row["gone"], row["tie"]))


def members(row: Event) -> dict[str, Any]:
    return {name: row[name] for name in ("a", "b", "c")}


def after_puts(rows: Iterable[Event]) -> dict[str, Any]:
    """Return the table after the rows as puts and deletes in their order."""
    last = {row["k"]: row for row in in_order(rows)}
    return {key: members(row) for key, row in last.items() if not row["gone"]}


def after_updates(rows: Iterable[Event], nulls: str) -> dict[str, Any]:
    """Return the table after the rows as updates and deletes in their order."""
    table: dict[str, Any] = {}
    for row in in_order(rows):
        if row["gone"]:
            table.pop(row["k"], None)
        else:
            written = {name: value for name, value in members(row).items() if value is not None or nulls == "write"}
            table.setdefault(row["k"], {}).update(written)
    return table


def framed(spark: SparkSession, rows: Iterable[Event]) -> DataFrame:
    return spark.createDataFrame([tuple(row.values()) for row in rows], SCHEMA)


@pytest.mark.parametrize(
    ("sequence", "expected"),
    [
        ("9223372036854775807L", 2**63 - 1),
        ("timestamp'2026-11-20 12:00:00.000001Z'", "2026-11-20T12:00:00.000001"),
        ("timestamp_ntz'2026-11-01 01:30:00.5'", "2026-11-01T01:30:00.5"),  # an hour that New York has twice
        ("timestamp_ntz'2026-03-08 02:30:00'", "2026-03-08T02:30"),  # and one that it lacks
        ("timestamp_ntz'0001-01-01 00:00:00'", "0001-01-01T00:00"),
        ("date'2026-11-20'", "2026-11-20T00:00"),
    ],
)
def test_a_sequence_is_an_integer_or_microseconds_since_1970(
    spark: SparkSession, service: Service, sequence: str, expected: int | str
) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "America/New_York"
    if isinstance(expected, str):
        since = dt.datetime.fromisoformat(f"{expected}+00:00") - dt.datetime.fromtimestamp(0, dt.UTC)
        expected = since // dt.timedelta(microseconds=1)
    table, frame = Table("sequence_types", service.url), spark.sql(f"select 'a' k, 1 n, {sequence} at")
    with Client(service.url) as client:
        client.table(table.name).delete("a", forget=True)
        assert table.put(frame, "k", sequence_by="at").applied == 1
        superseded = [client.table(table.name).put("a", {}, order=expected + by).superseded for by in (-1, 0)]
    assert superseded == [True, False]
    assert table.update(frame, "k", set=["n"], sequence_by=col("at")).applied == 1
    assert stored(service, table.name) == {"a": {"n": 1}}
    assert table.delete(frame, "k", sequence_by="at").applied == 1
    assert stored(service, table.name) == {}


def test_writes_of_several_sources_may_arrive_in_any_order(spark: SparkSession, service: Service, full: bool) -> None:
    rows = events(300)
    parts = [[row for row in rows if row["at"] % 3 == part] for part in range(3)]
    for number, arrival in enumerate([*permutations(parts)][1 :: 1 if full else 4]):
        table = Table(f"sequence_sources_{number}", service.url)
        for part in (*arrival, arrival[0]):  # the first one arrives again
            write = partial(table.put, key="k", columns=["a", "b", "c"], delete_when="gone", order_by="tie")
            summary = write(framed(spark, part), sequence_by="at")
            assert summary.sent == summary.applied + summary.superseded == len(part)
            assert summary.operations == len({row["k"] for row in part})
        assert stored(service, table.name) == after_puts(rows)


@pytest.mark.parametrize(("form", "nulls"), [("set", "omit"), ("list", "write"), ("text", "omit")])
def test_each_member_gets_its_own_newest_row(spark: SparkSession, service: Service, nulls: Any, form: str) -> None:
    rows, table = events(400), Table(f"sequence_members_{form}_{nulls}", service.url)
    columns = F.struct("a", "b", "c")
    null_members = {"ignoreNullFields": str(nulls == "omit").lower()}
    forms: dict[str, dict[str, Any]] = {
        "set": {"set": ["a", "b", "c"]},
        "list": {"update": [{"$set": {"a": col("a"), "b": col("b")}}, {"$set": {"c": col("c")}}]},
        "text": {"update": F.to_json(F.struct(columns.alias("$set")), null_members)},
    }
    for part in (1, 0, 1):
        frame = framed(spark, [row for row in rows if row["at"] % 2 == part])
        options = {"delete_when": "gone", "order_by": "tie", "sequence_by": "at", "nulls": nulls}
        summary = table.update(frame, "k", **forms[form], **options)
        assert summary.sent == summary.applied + summary.superseded == frame.count()
        if form != "text":
            assert summary.operations <= 20 * (5 if nulls == "omit" else 2)
    assert stored(service, table.name) == after_updates(rows, nulls)


def test_a_merge_patch_and_unset_remove_members_as_of_their_sequence(spark: SparkSession, service: Service) -> None:
    table = Table("sequence_removed", service.url)
    rows = [("x", 1, "one", "one"), ("x", 3, None, "three"), ("y", 1, "one", "one")]
    frame = spark.createDataFrame(rows, "k string, at long, a string, b string")
    table.update(frame, "k", {"a": col("a"), "b": col("b")}, sequence_by="at")
    table.update(frame.where("at = 1").withColumn("at", lit(2)), "k", {"$set": {"a": "two"}}, sequence_by="at")
    table.update(frame.where("k = 'y'").withColumn("at", lit(3)), "k", {"$unset": ["b"]}, sequence_by="at")
    assert stored(service, table.name) == {"x": {"b": "three"}, "y": {"a": "two"}}


def test_a_stream_of_late_changes_needs_no_memory_of_its_micro_batches(
    spark: SparkSession, service: Service, tmp_path: Path
) -> None:
    rows = events(300)
    for file, part in enumerate(([row for row in rows if row["at"] >= 10], [row for row in rows if row["at"] < 10])):
        path = tmp_path / "in" / f"{file}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join(map(json.dumps, part)))
        os.utime(path, (file, file))  # a stream reads files in this order, so the older changes are late
    changes = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(tmp_path / "in"))
    copied, counted = (Table(f"sequence_stream_{at}", service.url) for at in range(2))
    columns: dict[str, Any] = {
        "columns": ["a", "b", "c"], "delete_when": "gone", "order_by": "tie", "sequence_by": "at",
    }  # fmt: skip
    putting = copied.put(changes, "k", **columns)
    for _ in range(2):
        query = finished(putting.start(str(tmp_path / "put"), availableNow=True))
        assert query.exception() is None
        summaries = progress(query)
        assert all(each.replayed == 0 and each.applied + each.superseded == each.sent for each in summaries)
        assert summaries[-1].superseded > 0
        assert stored(service, copied.name) == after_puts(rows)
        uncommitted(tmp_path / "put")

    def write_twice(batch: DataFrame, number: int) -> None:
        for by in (1, 0):
            counted.put(batch.where(col("at") % 2 == by), "k", **columns)

    writer = changes.writeStream.foreachBatch(write_twice).option("checkpointLocation", str(tmp_path / "each"))
    assert finished(writer.trigger(availableNow=True).start()).exception() is None
    assert stored(service, counted.name) == after_puts(rows)
    with Client(service.url) as client:
        assert not [name for table in client.tables() if (name := table["name"]).startswith("sequence_stream_0@")]


def test_a_row_without_a_valid_sequence_fails_alone(spark: SparkSession, service: Service) -> None:
    table = Table("sequence_null", service.url)
    frame = spark.createDataFrame(
        [("x", 1, False), ("x", None, False), ("y", None, True)], "k string, at int, gone boolean"
    )
    writes: list[Callable[..., Any]] = [
        partial(table.put, delete_when="gone"), partial(table.update, set=["gone"], delete_when="gone"), table.delete,
    ]  # fmt: skip
    for write in writes:
        summary = write(frame, "k", sequence_by="at", on_error="collect")
        assert (summary.applied, summary.failed) == (1, 2)
        failed = {(row.k, row.code, row.detail) for row in summary.failures.collect()}
        assert failed == {(key, "invalid_operation", "column at of sequence_by is null") for key in "xy"}
        with pytest.raises(TableWriteError, match=r"2 rows failed .* column at of sequence_by is null") as caught:
            write(frame, "k", sequence_by="at")
        assert "token" not in str(caught.value)
    dates = spark.sql("select 'x' k, date_add(date'1970-01-01', 1000000000) at")
    with pytest.raises(TableWriteError, match="sequence_by is a date whose microseconds since 1970 exceed 64 bits"):
        table.delete(dates, "k", sequence_by="at")


def test_a_refused_update_fails_its_own_rows_and_no_others_of_its_key(spark: SparkSession, service: Service) -> None:
    table = Table("sequence_refused", service.url)
    times = F.timestamp_seconds(col("id"))
    text = F.when(col("id") == 3, '{"$inc": {"n": 1}}').otherwise(F.concat(lit('{"m'), "id", lit('": 1}')))
    frame = spark.range(6).select((col("id") % 2).cast("string").alias("k"), times.alias("at"), text.alias("u"))
    summary = table.update(frame, "k", col("u"), sequence_by="at", on_error="collect")
    assert (summary.operations, summary.applied, summary.failed) == (6, 5, 1)
    assert [(row.k, row.update) for row in summary.failures.collect()] == [("1", '{"$inc": {"n": 1}}')]
    assert stored(service, table.name) == {"0": {"m0": 1, "m2": 1, "m4": 1}, "1": {"m1": 1, "m5": 1}}


@pytest.mark.parametrize(
    ("verb", "options", "match"),
    [
        ("put", {"sequence_by": "s"}, "sequence_by is string: it must be an integer, a timestamp or a date"),
        ("put", {"sequence_by": "n", "token": "once"}, "token= cannot be combined with sequence_by"),
        ("update", {"update": {"$inc": {"n": 1}}, "sequence_by": "n"}, r"\$inc cannot have sequence_by"),
        ("update", {"update": {"a": {"b": 1}}, "sequence_by": "n"}, "the merge patch of a cannot"),
        ("update", {"set": ["s"], "default": {}, "sequence_by": "n"}, "default cannot be combined with sequence_by"),
        ("update", {"set": ["s"], "update": {"n": 1}}, "give either update= or set="),
        ("update", {"set": ["x.y"]}, "'x.y' is a path"),
        ("put", {"delete_when": "b"}, "delete_when needs order_by or sequence_by"),
    ],
)
def test_what_cannot_be_ordered_is_refused_before_anything_is_sent(
    spark: SparkSession, service: Service, verb: str, options: dict[str, Any], match: str
) -> None:
    table = Table("sequence_invalid", service.url)
    frame = spark.sql("select 'x' k, 1 n, 'text' s, true b, cast(1 as decimal(5, 0)) d, 2 `x.y`")
    with pytest.raises(ValueError, match=match):
        getattr(table, verb)(frame, "k", **options)
    with Client(service.url) as client:
        assert table.name not in [found["name"] for found in client.tables()]


def test_the_format_puts_ordered_rows_in_batches_and_streams(
    spark: SparkSession, service: Service, tmp_path: Path
) -> None:
    rows = [row for row in events(300) if not row["gone"]]
    unique = {(row["k"], row["at"]): row for row in rows}.values()  # the format does not order equal sequences
    frame = framed(spark, unique).select("k", F.timestamp_micros("at").alias("at"), "a", "b", "c")
    expected = {key: value | {"at": at} for key, value, at in latest(unique)}
    options = {"url": service.url, "table": "sequence_format", "key": "k", "sequence_by": "at"}
    for part in ("at >= timestamp_micros(10)", "at < timestamp_micros(10)"):
        frame.where(part).write.format("tableside").options(**options).mode("append").save()
    assert stored(service, "sequence_format") == expected
    frame.where("at < timestamp_micros(10)").write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema(frame.schema).parquet(str(tmp_path / "in"))
    writer = stream.writeStream.format("tableside").options(**options).option("checkpointLocation", str(tmp_path / "c"))
    assert finished(writer.trigger(availableNow=True).start()).exception() is None
    assert stored(service, "sequence_format") == expected
    with Client(service.url) as client:
        assert not [table for table in client.tables() if table["name"] == "sequence_format@runs"]
    null = frame.withColumn("at", F.when(col("a") > 5, col("at")))
    for wrong, change, match in (
        (null, {}, "column at is null in"),
        (frame, {"sequence_by": "b"}, "sequence_by is string"),
        (frame, {"sequence_by": "absent"}, "there is no column 'absent'"),
    ):
        with pytest.raises(Exception, match=match):
            wrong.write.format("tableside").options(**options | change).mode("append").save()


def latest(rows: Iterable[Event]) -> list[tuple[str, dict[str, Any], str]]:
    """Return the key, the members and the time of the newest row of each key."""
    last = {row["k"]: row for row in in_order(rows)}
    return [(key, members(row), f"1970-01-01T00:00:00.{row['at']:06d}Z") for key, row in last.items()]
