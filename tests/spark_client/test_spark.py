"""Frames joined with tables and written to them, in one process of Spark, on a running service."""

import datetime as dt
import json
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyspark.sql import (
    DataFrame,
    SparkSession,
    functions as F,  # noqa: N812 - its name everywhere
)
from pyspark.sql.functions import col, lit

from spark_client.sessions import jvm, stored
from support.running import Service, running
from tableside_client import TableNotFound
from tableside_spark import ChunkSize, Table
from tableside_spark.write import job

pytestmark = jvm("spark")


def numbers(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(count).select(F.concat(lit("k"), "id").alias("k"), col("id").alias("n"))


def test_put_records_are_joined(spark: SparkSession, service: Service) -> None:
    table = Table("spark_join", service.url, chunk=ChunkSize(300))
    summary = table.put(numbers(spark, 5_000), key="k")
    assert (summary.sent, summary.applied, summary.failed, summary.operations) == (5_000, 5_000, 0, 5_000)
    asked = spark.range(10_000).select(
        F.when(col("id") % 10 != 0, F.concat(lit("k"), (col("id") % 7_000).cast("string"))).alias("k"), "id"
    )
    left = table.join(asked, on="k", schema="n long, missing string")
    assert left.columns == ["k", "id", "n", "missing"]
    known = (col("id") % 7_000 < 5_000) & (col("id") % 10 != 0)
    assert left.count() == 10_000
    assert left.where(known & (col("n") != col("id") % 7_000)).count() == 0
    assert left.where(~known & col("n").isNotNull()).count() == 0
    matching = asked.where(known).count()
    assert table.join(asked, "k", "n long", "inner").where(col("n") == col("id") % 7_000).count() == matching
    assert table.join(asked, "k", how="left_semi").count() == matching
    assert table.enrich(asked, "k", how="semi").count() == matching
    assert table.enrich(asked, "k", "n long", "leftouter").count() == 10_000
    anti = table.enrich(asked, "k", how="anti")
    assert (anti.columns, anti.count()) == (["k", "id"], 10_000 - matching)
    assert json.loads(table.join(asked.where("id = 1"), "k").collect()[0].value) == {"n": 1}


def test_a_key_that_repeats_within_a_task_is_requested_once(spark: SparkSession, service: Service) -> None:
    table = Table("spark_repeated_keys", service.url, chunk=ChunkSize(50))
    table.put(numbers(spark, 60), "k")
    number = col("id") % 65
    key = F.when(col("id") % 11 != 0, F.concat(lit("k"), number))
    found = table.join(spark.range(1_000).coalesce(1).select(key.alias("k"), number.alias("m")), "k", "n long", "inner")
    assert found.where("n = m").count() > 800
    requested = r'^tableside_operations_total\{.*operation="get".*table="spark_repeated_keys".* (\d+)'
    gets = re.findall(requested, httpx.get(f"{service.url}/metrics").text, re.MULTILINE)
    assert sum(map(int, gets)) == 65


def test_a_key_that_no_record_can_have_matches_none(spark: SparkSession, service: Service) -> None:
    table = Table("spark_impossible_keys", service.url)
    table.put(spark.createDataFrame([("a", 1)], "k string, n int"), "k")
    keys = [lit("a"), lit(""), F.repeat(lit("x"), 1025), lit("a\0"), F.unhex(lit("ff")).cast("string"), lit("b")]
    frame = spark.range(1).select(F.explode(F.array(*keys)).alias("k"))
    found = table.enrich(frame, "k", "n int")
    assert [row.n for row in found.collect()] == [1, None, None, None, None, None]
    assert found.select(F.hex("k")).collect() == frame.select(F.hex("k")).collect()
    assert table.enrich(frame, "k", how="anti").count() == 5
    with pytest.raises(Exception, match="a key of this table is a string, not a number"):
        table.enrich(spark.range(1), "id", "n int").count()


def test_invalid_joins_and_writes_are_rejected_on_the_driver(spark: SparkSession, service: Service) -> None:
    table = Table("spark_refused", service.url)
    frame = numbers(spark, 3)
    key: Any = col("k")
    refusals: list[tuple[Callable[[], object], str]] = [
        (lambda: table.join(frame, "k", "N long"), "two columns are named"),
        (lambda: table.enrich(frame, "k", how="outer"), "read the whole table"),
        (lambda: table.put(frame.withColumn("b", col("k").cast("binary")), "k"), "column b is binary"),
        (lambda: table.put(frame.withColumn("d", col("n").cast("decimal(20,2)")), "k"), "decimals="),
        (lambda: table.update(frame, "k", {"$inc": {"n": col("k")}}), r"\$inc n does not accept string"),
        (lambda: table.update(frame, "k", {"$set": {"a": 1}, "b": 2}), "operators"),
        (lambda: table.update(frame, "k", {"$set": {"a": 1}, "$inc": {"a.b": 2}}), "two operators use the path"),
        (lambda: table.enrich(frame, "k", "a int", fields=["a,b"]), "separates names by commas"),
        (lambda: table.put(frame, "k", delete_when=col("n") > 1), "delete_when needs order_by"),
        (lambda: table.put(frame, "k", order_by=F.desc("n")), "order_by takes columns in ascending order"),
        (lambda: table.enrich(frame.withColumn("__tableside_value", lit(1)), "k"), "'__tableside_value' is reserved"),
        (lambda: table.update(frame, "k", {"a": 1}, token="t", at_least_once=True), "token= is for"),
        (
            lambda: table.update(frame, "k", {"$inc": {"d": col("n").cast("decimal(9,2)")}}, decimals="string"),
            r"\$inc d does not accept decimal\(9,2\) as a string: .* \(column \* 100\).cast\(.long.\) for cents",
        ),
        (lambda: Table("t", "http://user:secret@host"), "use a token"),
        (lambda: table.enrich(frame, "k", "n int", fields="seats"), r"fields must be a sequence .* \['seats'\]"),
        (lambda: table.delete(frame, key), "a key column is given by its name"),
    ]
    for refused, match in refusals:
        with pytest.raises((TypeError, ValueError), match=match):
            refused()
    assert "geheim" not in repr(Table("t", service.url, token="geheim"))


def test_a_text_that_is_not_one_update_is_refused(spark: SparkSession, service: Service) -> None:
    one = '{"$inc": {"n": 1}}'
    empty, many = ["", " ", "\t", "\r\n"], [f"{one},{one}", one[:-1], f"[{one}],[]"]
    valid = ["{}", f"\n[{one}, {one}]\n", "[\n]"]
    texts = [*empty, *many, *valid]
    frame = spark.createDataFrame([(str(at), text) for at, text in enumerate(texts)], "k string, u string")
    table = Table("spark_texts", service.url)
    summary = table.update(frame, "k", col("u"), default={"n": 0}, on_error="collect")
    assert (summary.sent, summary.applied, summary.failed) == (len(valid), len(valid), len(empty) + len(many))
    assert summary.failures is not None
    details = {row.k: row.detail for row in summary.failures.collect()}
    expected = ["the update is an empty text"] * len(empty) + ["the update is not one JSON document"] * len(many)
    assert [details[str(at)] for at in range(len(expected))] == expected
    assert [stored(service, table.name)[str(len(expected) + at)]["n"] for at in range(len(valid))] == [0, 2, 0]


def test_a_delete_with_the_same_order_by_value_is_applied_last(spark: SparkSession, service: Service) -> None:
    rows = [(key, n, 1, gone) for key in ("a", "b") for n, gone in ((1, key == "a"), (2, key == "b"))]
    frame = spark.createDataFrame([*rows, ("c", 3, 1, False)], "k string, n int, at int, gone boolean").coalesce(1)
    table = Table("spark_tied", service.url)
    table.put(frame, "k", columns=["n"], order_by="at", delete_when="gone")
    assert stored(service, table.name) == {"c": {"n": 3}}
    table.update(frame, "k", {"$inc": {"n": col("n")}}, default={}, order_by="at", delete_when="gone")
    assert stored(service, table.name) == {"c": {"n": 6}}


def test_a_join_with_a_table_that_does_not_exist_fails_at_once_with_one_line(
    spark: SparkSession, service: Service
) -> None:
    for how in ("left", "left_anti"):
        with pytest.raises(TableNotFound) as caught:
            Table("spark_nowhere", service.url).enrich(numbers(spark, 1), "k", "m int", how)
        assert str(caught.value) == "table spark_nowhere: table_not_found (404): no table has that name"


def test_every_type_is_written_as_json(spark: SparkSession, service: Service) -> None:
    row = spark.sql(
        """select 'a' k, 9223372036854775807 l, cast(1.5 as float) f, true b, cast(null as int) z,
           timestamp'2013-07-01 05:15:00.000001' ts, timestamp_ntz'2013-07-01 05:15:00' ntz, date'2013-07-01' d,
           cast(12345678901234567890.12 as decimal(22,2)) big,
           named_struct('x', cast(null as int), 'y', array(1, null)) s, map('m', 1.25BD) m"""
    )
    Table("spark_types", service.url).put(row, "k", decimals="string")
    expected = {
        "l": 2**63 - 1, "f": 1.5, "b": True, "z": None, "ts": "2013-07-01T09:15:00.000001Z",
        "ntz": "2013-07-01T05:15:00.000000", "d": "2013-07-01", "big": "12345678901234567890.12",
        "s": {"x": None, "y": [1, None]}, "m": {"m": "1.25"},
    }  # fmt: skip
    assert stored(service, "spark_types") == {"a": expected}
    Table("spark_types", service.url).put(row.select("k", "s", "z"), "k", nulls="omit")
    assert stored(service, "spark_types") == {"a": {"s": {"y": [1, None]}}}
    back = Table("spark_types", service.url).join(row.select("k"), "k", "s struct<y: array<int>>").collect()
    assert back[0].s.y == [1, None]


def an_update() -> dict[str, Any]:
    return {
        "$inc": {"count": lit(1), "sum": col("n"), "small": col("n").cast("short")},
        "$min": {"least": col("n"), "first": F.timestamp_micros(col("n") * 1_000_000)},
        "$max": {"most": (col("n") / 8), "text": F.concat(lit("t"), "n")},
        "$set": {"last.n": col("n"), "last.k": col("k"), "fixed": [1, "a", {"x": None}],
                 "maybe": F.when(col("n") % 2 == 0, 1), "third": F.when(col("n") % 3 == 0, col("n"))},
        "$push": {"all": col("n"), "some": F.when(col("n") % 3 == 0, col("n")), "each": {"$each": F.array("n", "n")}},
        "$addToSet": {"rest": (col("n") % 5), "structs": F.struct((col("n") % 2).alias("x"), lit("y").alias("y"))},
        "$unset": ["gone"],
    }  # fmt: skip


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    return spark.range(2_000).select((col("id") % 20).cast("string").alias("k"), col("id").alias("n"))


@pytest.mark.parametrize("nulls", ["write", "omit"])
def test_folded_and_listed_updates_leave_equal_tables(rows: DataFrame, service: Service, nulls: Any) -> None:
    tables = []
    for fold in (True, False):
        table = Table(f"spark_fold_{nulls}_{fold}", service.url)
        summary = table.update(
            rows, "k", an_update(), default={"gone": 1, "count": 0}, order_by="n", fold=fold, nulls=nulls
        )
        assert (summary.operations, summary.sent, summary.applied) == (20, 2_000, 2_000)
        tables.append(stored(service, table.name))
    assert tables[0] == tables[1]
    record = tables[0]["7"]
    assert (record["count"], record["sum"], record["least"]) == (100, sum(range(7, 2_000, 20)), 7)
    assert record["last"] == {"n": 1987, "k": "7"}
    assert record["all"] == list(range(7, 2_000, 20))
    assert record["first"] == "1970-01-01T00:00:07.000000Z"
    assert "gone" not in record
    assert ("maybe" in record) == (nulls == "write")
    assert record["third"] == (None if nulls == "write" else 1947)
    assert len(record["some"]) == (100 if nulls == "write" else len([n for n in range(7, 2_000, 20) if n % 3 == 0]))


def test_merge_patches_floats_and_opaque_updates(spark: SparkSession, rows: DataFrame, service: Service) -> None:
    for fold in (True, False):
        patched = Table(f"spark_patch_{fold}", service.url)
        patched.update(rows, "k", {"a": {"n": col("n"), "x": None}, "b": "c"}, default={"a": {"x": 1, "y": 2}},
                       order_by="n", fold=fold)  # fmt: skip
        assert stored(service, patched.name)["7"] == {"a": {"n": 1987, "y": 2}, "b": "c"}
    added = Table("spark_floats", service.url)
    added.update(rows, "k", {"$inc": {"f": col("n") / 7}}, default={}, order_by="n")
    total = 0.0
    for n in range(7, 2_000, 20):
        total += n / 7
    assert stored(service, "spark_floats")["7"] == {"f": total}
    text = F.format_string('{"$inc": {"n": %d}}', col("n"))
    Table("spark_text", service.url).update(rows, "k", text, default=F.lit('{"n": 1}'))
    assert stored(service, "spark_text")["7"] == {"n": 1 + sum(range(7, 2_000, 20))}
    listed: list[dict[str, Any]] = [{"$inc": {"n": lit(1)}}, {"m": col("n")}]
    Table("spark_list", service.url).update(rows, "k", listed, default={}, order_by="n")
    assert stored(service, "spark_list")["7"] == {"n": 100, "m": 1987}


def test_sums_beyond_64_bits_fail_their_key_alone(spark: SparkSession, service: Service) -> None:
    table = Table("spark_overflow", service.url)
    frame = spark.createDataFrame([("a", 1), ("b", 2**62), ("b", 2**62)], "k string, n long")
    summary = table.update(frame, "k", {"$inc": {"n": col("n")}}, default={"n": 0}, on_error="collect")
    assert (summary.applied, summary.failed) == (1, 2)
    assert summary.failures is not None
    failures = sorted((row.k, row.rows, row.code) for row in summary.failures.collect())
    assert failures == [(key, 1, "invalid_operation") for key in "bb"]
    assert stored(service, "spark_overflow") == {"a": {"n": 1}}


@pytest.mark.parametrize("fold", [True, False])
@pytest.mark.parametrize("operator", ["$inc", pytest.param("$addToSet", marks=pytest.mark.daily)])
def test_a_null_operand_fails_its_row_alone_and_the_error_names_the_option(
    spark: SparkSession, service: Service, operator: str, fold: bool
) -> None:
    table = Table(f"spark_null{operator.replace('$', '_')}_{fold}", service.url)
    frame = spark.createDataFrame([("a", 2), ("a", None), ("b", None)], "k string, n int")
    each = {"$each": F.when(col("n").isNotNull(), F.array("n"))}
    update = {operator: {"m": each if operator in ("$push", "$addToSet") else col("n")}}
    summary = table.update(frame, "k", update, default={}, fold=fold, on_error="collect")
    assert (summary.applied, summary.failed) == (1, 2)
    assert summary.failures is not None
    detail = f'{operator} m: the operand is null; filter such rows, or set nulls="omit"'
    assert sorted((row.k, row.detail) for row in summary.failures.collect()) == [("a", detail), ("b", detail)]
    with_a = stored(service, table.name)
    assert with_a.keys() == {"a"}
    table.delete(frame, "k")
    assert table.update(frame, "k", update, default={}, fold=fold, nulls="omit").applied == 3
    assert stored(service, table.name) == with_a | {"b": {}}


@pytest.mark.parametrize("fold", [True, False])
def test_omitted_nulls_have_no_effect_with_any_operator(spark: SparkSession, service: Service, fold: bool) -> None:
    table = Table(f"spark_omitted_{fold}", service.url)
    numbers, lists = ("inc", "min", "max", "set", "merged"), ("push", "add", "pushes", "adds")
    record = dict.fromkeys(numbers, 5) | {name: [5] for name in lists}
    table.put(spark.createDataFrame([(key, json.dumps(record)) for key in "ab"], "k string, v string"), "k", value="v")
    rows = [("a", None, 1), ("a", 7, 2), ("a", None, 3), ("b", None, 4)]
    frame, n = spark.createDataFrame(rows, "k string, n int, at int"), col("n")
    each = {"$each": F.when(n.isNotNull(), F.array(n))}
    operators = {
        "$inc": {"inc": n}, "$min": {"min": n}, "$max": {"max": n}, "$set": {"set": n},
        "$push": {"push": n, "pushes": each}, "$addToSet": {"add": n, "adds": each},
    }  # fmt: skip
    for update in (operators, {"merged": n}):
        summary = table.update(frame, "k", update, order_by="at", nulls="omit", fold=fold)
        assert (summary.applied, summary.failed) == (4, 0)
    added = {"inc": 12, "min": 5, "max": 7, "set": 7, "merged": 7} | {name: [5, 7] for name in lists}
    assert stored(service, table.name) == {"a": added, "b": record}


def test_jobs_stay_within_the_limits_of_the_service(spark: SparkSession, tmp_path: Path) -> None:
    config = tmp_path / "tableside.yaml"
    limits = "{operations_max: 200, operations_in_flight_max: 400, body_bytes_max: 20000, bytes_in_flight_max: 50000}"
    config.write_text(f"stores: {{m: {{kind: memory}}}}\ntables: {{t: {{store: m}}}}\nlimits: {limits}\n")
    frame = numbers(spark, 20_000)
    with running(tmp_path, config) as service:
        table = Table("t", service.url)
        assert table.put(frame, "k").retried == 0
        assert table.update(frame, "k", {"$inc": {"n": 1}}).retried == 0
        assert table.join(frame.select("k"), "k", "n long", "inner").count() == 20_000
        numbers(spark, 1_000).write.format("tableside").options(url=service.url, table="t", key="k").mode(
            "append"
        ).save()
        metrics = httpx.get(f"{service.url}/metrics").text
    assert not re.findall(r"^tableside_shed_total.* [1-9].*$", metrics, re.MULTILINE)
    batches = r'^tableside_http_requests_total\{method="POST",route="[^"]+/batch",status="(\d+)"\}'
    assert re.findall(batches, metrics, re.MULTILINE) == ["200"]


def test_the_summary_and_a_log_line_state_the_time_spent_waiting(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(job, "REPORT_MIN_S", 0.0)
    config = tmp_path / "tableside.yaml"
    limited = "{store: m, deadline_s: 0.1, write: {rate_per_s: 100, burst: 50}}"  # a request applies 60 rows
    config.write_text(f"stores: {{m: {{kind: memory}}}}\ntables: {{t: {limited}}}\n")
    with running(tmp_path, config) as service:
        summary = Table("t", service.url).put(numbers(spark, 300).coalesce(1), "k")
    assert summary.applied == 300
    assert 0 < summary.waited_s < summary.seconds
    [line] = [record.getMessage() for record in caplog.records if record.name == job.__name__]
    assert line == f"table t: tasks of the put waited {summary.waited_s:.1f} s for retries"


def test_a_stream_is_joined(spark: SparkSession, service: Service, tmp_path: Path) -> None:
    table = Table("spark_stream", service.url)
    table.put(numbers(spark, 100), "k")
    numbers(spark, 200).select("k").write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema("k string").parquet(str(tmp_path / "in"))
    writer = table.join(stream, "k", "n long", "inner").writeStream.format("parquet").trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.start(str(tmp_path / "out")).awaitTermination()
    assert spark.read.parquet(str(tmp_path / "out")).agg(F.count("n"), F.sum("n")).collect()[0] == (100, 4950)


def test_the_format_reads_its_own_writes_by_splits(spark: SparkSession, service: Service) -> None:
    frame = spark.range(3_000).select(
        F.concat(lit("k"), "id").alias("id"), col("id").alias("n"),
        F.timestamp_micros(col("id") * 1_234_567).alias("ts"),
        F.array(F.struct(F.lit(dt.date(2013, 7, 1)).alias("d"), F.lit(None).cast("int").alias("z"))).alias("a"),
        F.lit(Decimal("1.25")).alias("dec"),
    )  # fmt: skip
    writer = frame.write.format("tableside").option("url", service.url).option("table", "spark_source")
    writer.option("key", "id").mode("append").save()
    reader = spark.read.format("tableside").option("url", service.url).option("table", "spark_source")
    typed = reader.option("key", "id").schema(frame.schema).load()
    assert typed.rdd.getNumPartitions() > 1
    assert typed.exceptAll(frame).count() == frame.exceptAll(typed).count() == 0
    plain = spark.read.format("tableside").option("url", service.url).option("table", "spark_source").load()
    assert (plain.columns, plain.count()) == (["key", "value"], 3_000)
    with pytest.raises(Exception, match="the option token is rejected"):
        reader.option("token", "geheim").load().count()


def test_columns_may_have_dots_and_backticks(spark: SparkSession, service: Service) -> None:
    table = Table("spark_dots", service.url)
    rows = spark.range(20).select(F.concat(lit("k"), "id").alias("a.`k`"), col("id").alias("n.m"), col("id").alias("n"))
    assert table.put(rows, "a.`k`").applied == 20
    assert stored(service, "spark_dots")["k3"] == {"n.m": 3, "n": 3}
    found = table.join(rows.select(F.col("`a.``k```"), F.col("`n.m`").alias("x.y")), "a.`k`", "n long")
    assert found.columns == ["a.`k`", "x.y", "n"]
    assert found.where(F.col("`x.y`") == F.col("n")).count() == 20
    summary = table.update(rows, "a.`k`", {"$min": {"n": "x"}}, on_error="collect")
    assert summary.failures is not None
    assert summary.failures.columns == ["a.`k`", "update", "rows", "code", "detail", "retriable"]
    assert {row["a.`k`"] for row in summary.failures.collect()} == {f"k{at}" for at in range(20)}
