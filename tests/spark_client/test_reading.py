"""A lookup and a scan read each JSON value in the same way: `reading_cases` has the values."""

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import httpx
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import VariantVal

from spark_client.reading_cases import CASES, MISFIT
from spark_client.sessions import jvm
from support.running import Service, running
from tableside_client import Client
from tableside_spark import Table

pytestmark = jvm("spark")

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
        with Client(service.url) as client:
            client.table("misfits").load((f"k{at}", {"n": at if at % 2 else f"{at}"}) for at in range(10))
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


def test_strings_of_decimals_survive_the_formats_round_trip(spark: SparkSession, service: Service) -> None:
    frame = spark.sql(
        """select 'a' k, cast('-12345678901234567890.000000000000000001' as decimal(38,18)) d,
           array(cast(1.25 as decimal(5,2))) l, map('m', cast(7 as decimal(20,0))) m,
           timestamp'2013-07-01 05:15:00.000001Z' t, timestamp_ntz'2013-07-01 05:15:00' z, date'2013-07-01' e,
           named_struct('f', cast(0.1 as float)) s"""
    )
    options = {"url": service.url, "table": "round_trip", "key": "k"}
    frame.write.format("tableside").options(**options, decimals="string").mode("append").save()
    found = spark.read.format("tableside").options(**options).schema(frame.schema).load()
    schema = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in frame.schema.fields[1:])
    looked_up = Table("round_trip", service.url).enrich(frame.select("k"), "k", schema)
    assert found.collect() == frame.collect() == looked_up.collect()
