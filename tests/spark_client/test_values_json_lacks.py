"""Values that JSON cannot represent, or not without loss: rejected with their column, in every write."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import (
    Column,
    DataFrame,
    SparkSession,
    functions as F,  # noqa: N812 - its name everywhere
)
from pyspark.sql.functions import col, lit

from spark_client.sessions import jvm, stored
from support.running import Service
from tableside_spark import Table

pytestmark = jvm("spark")

Write = Callable[[Table, DataFrame], Any]

YEARS = "a time outside of the years 1 to 9999 in UTC"
WRITES: dict[str, tuple[str, Write]] = {
    "put": ("v", lambda table, rows: table.put(rows, "k", on_error="collect")),
    "$max": ("$max v", lambda table, rows: update(table, rows, {"$max": {"v": col("v")}})),
    "$set": ("$set a.b", lambda table, rows: update(table, rows, {"$set": {"a.b": nested(col("v"))}})),
    "merge patch": ("a.v", lambda table, rows: update(table, rows, {"a": {"v": nested(col("v"))}})),
    "opaque update": ("update", lambda table, rows: update(table, rows, F.struct(col("v")))),
}


def update(table: Table, rows: DataFrame, document: Any, **options: Any) -> Any:
    return table.update(rows, "k", document, on_error="collect", **options)


def nested(column: Column) -> Column:
    return F.array(F.create_map(lit("m"), F.struct(column.alias("x"))))


def times(spark: SparkSession, kind: str) -> DataFrame:
    """Return a row for each of six times. The first two and the last two have years of more or fewer digits in UTC."""
    texts = ["0000-12-31T23:59:59.999999", "-0044-03-15T00:00:00", "0001-01-01T00:00:00", "9999-12-31T23:59:59.999999"]
    texts += ["+10000-01-01T00:00:00", "+12345-01-01T00:00:00"]
    rows = spark.createDataFrame([(str(at), f"{text}Z") for at, text in enumerate(texts)], "k string, t string")
    rows = rows.select("k", col("t").cast(kind).alias("v"))
    return rows.withColumn("whole", F.struct("v"))


@pytest.mark.parametrize(
    ("kind", "name"), [*zip(itertools.cycle(["timestamp", "timestamp_ntz", "date"]), WRITES, strict=False)]
)
def test_a_time_outside_of_the_years_1_to_9999_is_a_failed_row(
    spark: SparkSession, service: Service, name: str, kind: str
) -> None:
    label, write = WRITES[name]
    table = Table(f"spark_years_{kind}_{list(WRITES).index(name)}", service.url)
    table.put(spark.createDataFrame([("2", 0), ("3", 0)], "k string, n int"), "k")
    summary = write(table, times(spark, kind).drop(*(["whole"] if name == "put" else [])))
    assert (summary.applied, summary.failed) == (2, 4)
    assert {(row.k, row.detail) for row in summary.failures.collect()} == {
        (key, f"column {label} contains {YEARS}") for key in "0145"
    }
    texts = [str(stored(service, table.name)[key]) for key in "23"]
    assert "'0001-01-01" in texts[0]
    assert "'9999-12-31" in texts[1]


def test_a_sentinel_that_is_in_another_year_in_utc_is_rejected(spark: SparkSession, service: Service) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "America/New_York"
    rows = spark.sql("select 'a' k, timestamp'9999-12-31 23:59:59' t, timestamp_ntz'9999-12-31 23:59:59' n")
    table = Table("spark_sentinel", service.url)
    assert table.put(rows.drop("t"), "k").applied == 1
    for fold in (True, False):
        summary = update(table, rows, {"$max": {"n": col("n"), "t": col("t")}}, fold=fold)
        assert [row.detail for row in summary.failures.collect()] == [f"column $max t contains {YEARS}"]
    assert stored(service, table.name) == {"a": {"n": "9999-12-31T23:59:59.000000"}}


REPEATING_WRITES: list[tuple[str, Write]] = [
    ("v", lambda table, rows: table.put(rows, "k")),
    ("$addToSet q[]", lambda table, rows: table.update(rows, "k", {"$addToSet": {"q": {"$each": F.array("v")}}})),
    ("q.r", lambda table, rows: table.update(rows, "k", {"q": {"r": col("v")}})),
    ("q", lambda table, rows: table.update(rows, "k", {"n": 1}, default={"q": col("v")})),
]


def test_two_members_of_one_name_are_rejected(spark: SparkSession, service: Service) -> None:
    table = Table("spark_repeated_names", service.url)
    for text, path in (
        ("named_struct('x', 1, 'y', 2, 'x', 3)", ""),
        ("named_struct('m', map('k', array(named_struct('x', null, 'x', 2))))", ".m{}[]"),
    ):
        rows = spark.sql(f"select 'a' k, {text} v")
        for label, write in REPEATING_WRITES:
            with pytest.raises(ValueError, match="two members named 'x': rename or drop one") as caught:
                write(table, rows)
            assert str(caught.value).startswith(f"column {label}{path} has")


def test_names_that_differ_in_case_only_are_different_members(spark: SparkSession, service: Service) -> None:
    rows = spark.sql(
        """select 'a' k, array(named_struct('a', 1.5d, 'A', timestamp'2013-07-01 00:00:00Z', 'ä', 0.50BD, 'Ä', null)) v,
           named_struct('x', 1, 'X', named_struct('b', 1d, 'B', 2d)) s"""
    )
    table = Table("spark_names_in_case", service.url)
    v, s = [{"a": 1.5, "A": "2013-07-01T00:00:00.000000Z", "ä": "0.50", "Ä": None}], {"x": 1, "X": {"b": 1.0, "B": 2.0}}
    table.put(rows, "k", decimals="string")
    assert stored(service, table.name) == {"a": {"v": v, "s": s}}
    table.put(rows, "k", value="s")
    change = {"$set": {"q": col("v"), "Q": col("s")}, "$push": {"l": col("s")}}
    table.update(rows, "k", change, default={"d": 1, "D": col("s")}, decimals="string")
    assert stored(service, table.name) == {"a": {**s, "q": v, "Q": s, "l": [s]}}
    bad = rows.select("k", F.array(F.struct(lit(1.0).alias("a"), lit(float("nan")).alias("A"))).alias("v"))
    [failed] = table.put(bad, "k", on_error="collect").failures.collect()
    assert failed.detail == "column v contains a NaN or an infinity"


def test_a_map_with_two_equal_keys_is_a_failed_row(spark: SparkSession, service: Service) -> None:
    texts = spark.createDataFrame(
        [("a", '{"x": 1, "x": 2}'), ("b", '{"x": 1, "X": 2}'), ("c", None)], "k string, j string"
    )
    maps = F.from_json("j", "map<string,int>")
    table = Table("spark_equal_keys", service.url)
    for change in (None, {"$set": {"m": col("m")}}):
        rows = texts.select("k", F.array(maps).alias("m"))
        summary = table.put(rows, "k", on_error="collect") if change is None else update(table, rows, change)
        label = "m" if change is None else "$set m"
        assert [(row.k, row.detail) for row in summary.failures.collect()] == [
            ("a", f"column {label} contains a map with two equal keys")
        ]
    assert stored(service, table.name) == {"b": {"m": [{"x": 1, "X": 2}]}, "c": {"m": [None]}}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("array(if(id > 1, double('nan'), 0))", "column v contains a NaN or an infinity in 2 rows"),
        ("array(timestamp_seconds(if(id > 0, 253402300800, 0)))", f"column v contains {YEARS} in 3 rows"),
        ("if(id = 0, date'+10000-01-01', date'2013-01-01')", f"column v contains {YEARS} in 1 rows"),
        (
            "from_json(if(id = 3, '{\"x\": 1, \"x\": 2}', '{}'), 'map<string,int>')",
            "column v contains a map with two equal keys in 1 rows",
        ),
        ("array(named_struct('x', 1, 'x', 2))", "column v[] has two members named 'x'"),
        ("string(unhex('ff'))", "column v contains text that is not valid UTF-8 in 4 rows"),
    ],
)
def test_the_format_names_the_column_and_counts_the_rows(
    spark: SparkSession, service: Service, value: str, message: str
) -> None:
    rows = spark.range(0, 4, 1, 1).selectExpr("string(id) k", f"{value} v")
    writer = rows.write.format("tableside").options(url=service.url, table="spark_lacking", key="k").mode("append")
    with pytest.raises(PySparkException) as caught:
        writer.save()
    assert message in str(caught.value)
