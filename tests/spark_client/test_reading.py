"""A lookup and a scan read each JSON value in the same way."""

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import httpx
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col
from pyspark.sql.types import VariantVal

from spark_client.sessions import jvm, stored
from support.running import Service, running
from tableside_spark import Table

pytestmark = jvm("spark")

MISFIT = "misfit"
AT = dt.datetime(2013, 7, 1, 5, 15, tzinfo=dt.UTC)
LOCAL = AT.replace(tzinfo=None)
DAY = dt.date(2013, 7, 1)

CASES: list[tuple[str, str, Any]] = [
    ("string", '"é"', "é"),
    ("string", '{"b": [1, "é", null, 0.1], "a": {}}', '{"b":[1,"é",null,0.1],"a":{}}'),
    ("boolean", "true", True),
    ("boolean", '"true"', MISFIT),
    ("tinyint", "128", MISFIT),
    ("int", '"1"', MISFIT),
    ("bigint", "9223372036854775807", 2**63 - 1),
    ("float", "0.1", 0.10000000149011612),
    ("double", '"Infinity"', float("inf")),
    ("double", '"0.1"', MISFIT),
    ("decimal(10,2)", "12.34", Decimal("12.34")),
    ("decimal(10,2)", '"12.34"', Decimal("12.34")),
    ("decimal(4,2)", "123.4", MISFIT),
    ("decimal(10,2)", '"NaN"', MISFIT),
    ("decimal(38,18)", '"-0.000000000000000001"', Decimal("-1e-18")),
    ("decimal(20,0)", "9007199254740993", Decimal(9007199254740993)),
    ("timestamp", '"2013-07-01T05:15:00Z"', AT),
    ("timestamp", '"2013-07-01T01:15:00-04:00"', AT),
    ("timestamp", '"2013-07-01 10:45:00+0530"', AT),
    ("timestamp", '"2013-07-01T05:15:00"', AT),
    ("timestamp", '"2013-07-01T05:15:00.123456789Z"', AT.replace(microsecond=123_456)),
    ("timestamp", "1372655700", AT),
    ("timestamp", '"2013-07-32T05:15:00Z"', MISFIT),
    ("timestamp_ntz", '"2013-07-01 05:15:00.123456789"', LOCAL.replace(microsecond=123_456)),
    ("timestamp_ntz", '"2013-07-01T05:15:00Z"', MISFIT),
    ("date", '"2013-07-01"', DAY),
    ("date", '"2013-07-01T23:15:00-04:00"', DAY),
    ("binary", '"AP8="', b"\x00\xff"),
    ("binary", '"%"', MISFIT),
    ("array<int>", "[1, null]", [1, None]),
    ("array<int>", '[1, "2"]', MISFIT),
    ("struct<a: int, b: array<date>>", '{"b": ["2013-07-01T00:00:00Z"], "c": 1}', (None, [DAY])),
    ("struct<a: struct<b: decimal(4,1)>>", '{"a": {"b": true}}', MISFIT),
    ("map<string,int>", '{"a": 1, "b": null}', {"a": 1, "b": None}),
    ("map<string,array<timestamp>>", '{"a": ["2013-07-01T05:15:00Z"]}', {"a": [AT]}),
    ("variant", '{"a": [1, "x", null, 1.5]}', {"a": [1, "x", None, Decimal("1.5")]}),
]
"""Null and an absent member are null for each type."""

SCHEMA = ", ".join(f"m{at} {kind}" for at, (kind, _, _) in enumerate(CASES))
EXPECTED: list[Any] = [None if expected == MISFIT else expected for _, _, expected in CASES]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with running(tmp_path_factory.mktemp("reading")) as service:
        document = ",".join(f'"m{at}":{text}' for at, (_, text, _) in enumerate(CASES))
        nulls = ",".join(f'"m{at}":null' for at in range(len(CASES)))
        for key, text in (("all", document), ("nulls", nulls), ("absent", "")):
            url = f"{service.url}/v1/tables/cases/records/{key}"
            httpx.put(url, content=f"{{{text}}}", headers={"Content-Type": "application/json"}).raise_for_status()
        yield service


def read(spark: SparkSession, service: Service, way: str, schema: str, table: str = "cases") -> DataFrame:
    reader = spark.read.format("tableside").options(url=service.url, table=table, on_mismatch="null")
    scanned = reader.schema(f"key string, {schema}").load()
    if way == "scan":
        return scanned
    return Table(table, service.url).enrich(scanned.select("key"), "key", schema, on_mismatch="null")


def plain(value: Any) -> Any:
    if isinstance(value, VariantVal):
        return value.toPython()
    if isinstance(value, list):
        return list(map(plain, value))
    return value


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Kolkata"])
@pytest.mark.parametrize("way", ["lookup", "scan"])
def test_each_case_is_read_as_the_table_says(spark: SparkSession, service: Service, way: str, zone: str) -> None:
    before = str(spark.conf.get("spark.sql.session.timeZone"))
    spark.conf.set("spark.sql.session.timeZone", zone)
    spark.conf.set("spark.sql.legacy.timeParserPolicy", "LEGACY")
    try:
        # Text and microseconds do not depend on the time zone of Python.
        times = {at for at, (kind, _, _) in enumerate(CASES) if kind == "timestamp"}
        frame = read(spark, service, way, SCHEMA)
        columns = [f"unix_micros(m{at}) m{at}" if at in times else f"m{at}" for at in range(len(CASES))]
        rows = {row.key: row for row in frame.selectExpr("key", *columns).collect()}
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
        spark.conf.unset("spark.sql.legacy.timeParserPolicy")
    for at, (kind, text, _) in enumerate(CASES):
        expected = EXPECTED[at]
        if at in times and expected is not None:
            expected = int(Decimal(str(expected.timestamp())) * 1_000_000)
        found = plain(rows["all"][f"m{at}"])
        if kind == "map<string,array<timestamp>>":
            assert list(found) == list(expected)
        else:
            assert (kind, text, found) == (kind, text, expected)
    for key in ("nulls", "absent"):
        assert set(rows[key].asDict().values()) == {key, None}


# Options of a session change neither writes nor reads.

OPTIONS = {
    "spark.sql.ansi.enabled": "false",
    "spark.sql.caseSensitive": "true",
    "spark.sql.columnNameOfCorruptRecord": "s",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1",
    "spark.sql.execution.arrow.useLargeVarTypes": "true",
    "spark.sql.json.enableExactStringParsing": "false",
    "spark.sql.json.enablePartialResults": "false",
    "spark.sql.jsonGenerator.ignoreNullFields": "false",
    "spark.sql.jsonGenerator.writeNullIfWithDefaultValue": "false",
    "spark.sql.legacy.allowNegativeScaleOfDecimal": "true",
    "spark.sql.legacy.json.allowEmptyString.enabled": "true",
    "spark.sql.legacy.json.enableDateTimeParsingFallback": "true",
    "spark.sql.legacy.sizeOfNull": "true",
    "spark.sql.legacy.timeParserPolicy": "LEGACY",
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    "spark.sql.optimizer.enableJsonExpressionOptimization": "false",
    "spark.sql.parser.quotedRegexColumnNames": "true",
    "spark.sql.session.timeZone": "Asia/Tokyo",
    "spark.sql.variant.allowDuplicateKeys": "true",
}
ROW = """
    select 'a' k, timestamp'2013-07-01 10:00:00.123456Z' t, timestamp'1500-02-28 00:00:00Z' julian, date'1500-02-28' d,
           timestamp_ntz'2013-07-01 10:00:00.123456' z, '' s, cast(0.1 as float) f,
           cast(1e-7 as decimal(20,10)) n, cast(null as int) x,
           array(named_struct('t', timestamp'0001-01-01 00:00:00Z', 'x', cast(null as int))) l,
           map('t', timestamp'2013-07-01 10:00:00.123456Z', 'x', null) m
"""
TYPES = """t timestamp, julian timestamp, d date, z timestamp_ntz, s string, f float, n decimal(20,10), x int,
            l array<struct<t: timestamp, x: int>>, m map<string, timestamp>"""


@pytest.fixture
def optioned(spark: SparkSession) -> Iterator[SparkSession]:
    """A session with every option."""
    before: dict[str, str | None] = {name: spark.conf.get(name, None) for name in OPTIONS}
    for name, setting in OPTIONS.items():
        spark.conf.set(name, setting)
    yield spark
    for name, previous in before.items():
        spark.conf.unset(name) if previous is None else spark.conf.set(name, previous)


def as_json(frame: DataFrame) -> list[str]:
    return [row.text for row in frame.selectExpr("to_json(struct(*)) text").collect()]


def test_the_options_of_a_session_change_neither_writes_nor_reads(optioned: SparkSession, service: Service) -> None:
    time = "2013-07-01T10:00:00.123456"
    times, early = {"t": f"{time}Z", "x": None}, [{"t": "0001-01-01T00:00:00.000000Z", "x": None}]
    expected = {
        "t": f"{time}Z", "julian": "1500-02-28T00:00:00.000000Z", "d": "1500-02-28", "z": time, "f": 0.1, "s": "",
        "n": "0.0000001000", "x": None, "l": early, "m": times,
    }  # fmt: skip
    row, written, saved = optioned.sql(ROW), Table("options_put", service.url), Table("options_saved", service.url)
    written.put(row, "k", decimals="string")
    options = {"url": service.url, "table": saved.name, "key": "k"}
    row.write.format("tableside").options(**options, decimals="string").mode("append").save()
    for table in (written, saved):
        assert stored(service, table.name) == {"a": expected}
        assert as_json(table.enrich(row.select("k"), "k", TYPES)) == as_json(row)
    scanned = optioned.read.format("tableside").options(**options).schema(f"k string, {TYPES}").load()
    assert as_json(scanned) == as_json(row)
    change = {"$max": {"t": col("t")}, "$set": {"m": col("m"), "x": col("x")}, "$push": {"l": col("l")[0]}}
    updated = Table("options_update", service.url)
    updated.update(row.union(row), "k", change, default={"d": col("d"), "s": col("s")})
    both = {"d": "1500-02-28", "s": "", "t": f"{time}Z", "m": times, "x": None, "l": early * 2}
    assert stored(service, updated.name) == {"a": both}
    assert updated.put(row, "k", decimals="string", nulls="omit").applied == 1
    assert set(stored(service, updated.name)["a"]) == set(expected) - {"x"}
