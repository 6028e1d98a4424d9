"""Options of a Spark session that change how Spark itself writes or reads JSON, times and nulls: no effect here."""

from collections.abc import Iterator

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

from spark_client.sessions import jvm, stored
from support.running import Service
from tableside_spark import Table

pytestmark = jvm("spark")

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
           timestamp_ntz'2013-07-01 10:00:00.123456' z, '' s, cast(1e-7 as decimal(20,10)) n, cast(null as int) x,
           array(named_struct('t', timestamp'0001-01-01 00:00:00Z', 'x', cast(null as int))) l,
           map('t', timestamp'2013-07-01 10:00:00.123456Z', 'x', null) m
"""
SCHEMA = """t timestamp, julian timestamp, d date, z timestamp_ntz, s string, n decimal(20,10), x int,
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
        "t": f"{time}Z", "julian": "1500-02-28T00:00:00.000000Z", "d": "1500-02-28", "z": time, "s": "",
        "n": "0.0000001000", "x": None, "l": early, "m": times,
    }  # fmt: skip
    row, written, saved = optioned.sql(ROW), Table("options_put", service.url), Table("options_saved", service.url)
    written.put(row, "k", decimals="string")
    options = {"url": service.url, "table": saved.name, "key": "k"}
    row.write.format("tableside").options(**options, decimals="string").mode("append").save()
    for table in (written, saved):
        assert stored(service, table.name) == {"a": expected}
        assert as_json(table.enrich(row.select("k"), "k", SCHEMA)) == as_json(row)
    scanned = optioned.read.format("tableside").options(**options).schema(f"k string, {SCHEMA}").load()
    assert as_json(scanned) == as_json(row)
    change = {"$max": {"t": col("t")}, "$set": {"m": col("m"), "x": col("x")}, "$push": {"l": col("l")[0]}}
    updated = Table("options_update", service.url)
    updated.update(row.union(row), "k", change, default={"d": col("d"), "s": col("s")})
    both = {"d": "1500-02-28", "s": "", "t": f"{time}Z", "m": times, "x": None, "l": early * 2}
    assert stored(service, updated.name) == {"a": both}
    assert updated.put(row, "k", decimals="string", nulls="omit").applied == 1
    assert set(stored(service, updated.name)["a"]) == set(expected) - {"x"}
