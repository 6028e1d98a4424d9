"""A value that does not fit the schema: one line names the column, the key and the types, but never the value."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import IntegerType, StringType, StructField, StructType, TimestampType

from spark_client.sessions import jvm
from support.running import Service, running
from tableside_client import Client
from tableside_spark import Table

pytestmark = jvm("spark")

SECRET = "geheim-3141592653"
VALUES: dict[str, dict[str, Any]] = {
    "string": {"n": SECRET},
    "nested": {"n": 1, "s": {"a": {"b": [1, SECRET]}}},
    "several": {"n": 1, "t": SECRET, "s": None, "other": SECRET},
    "fits": {"n": 1, "s": {"a": {"b": [1]}}, "t": "2013-07-01T05:15:00Z", "other": [SECRET]},
}
SCHEMA = "n int, s struct<a: struct<b: array<int>>>, t timestamp"
FAULTS = {
    "string": ("n", "string", "int"),
    "nested": ("s", "object", "struct<a:struct<b:array<int>>>"),
    "several": ("t", "string", "timestamp"),
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    directory = tmp_path_factory.mktemp("mismatch")
    path = directory / "tableside.yaml"
    tables = {
        "simple": {"store": "s"},
        "names": {"store": "s"},
        "pairs": {"store": "s", "key": {"who": "string", "at": "integer"}},
    }
    path.write_text(json.dumps({"stores": {"s": {"kind": "memory"}}, "tables": tables}))
    with running(directory, path) as service:
        with Client(service.url) as client:
            for name, value in VALUES.items():
                client.table("simple").put(name, value)
            client.table("pairs").put(("a'\n", 7), {"n": SECRET})
        yield service


def message(column: str, found: str, key: str, wanted: str, table: str = "simple") -> str:
    return (
        f"table {table}: column {column} is a JSON {found} for key {key}, which does not fit {wanted}; "
        'correct the record or the schema, or set on_mismatch to "null"'
    )


def keys(spark: SparkSession, *names: str) -> DataFrame:
    return spark.createDataFrame([(name,) for name in names], "k string")


@pytest.mark.parametrize("name", FAULTS)
def test_a_lookup_names_column_key_and_types_in_one_line(spark: SparkSession, service: Service, name: str) -> None:
    found = Table("simple", service.url).enrich(keys(spark, "fits", name), "k", SCHEMA)
    with pytest.raises(Exception, match="USER_RAISED_EXCEPTION") as caught:
        found.collect()
    column, kind, wanted = FAULTS[name]
    expected = message(column, kind, json.dumps(name), wanted)
    assert str(caught.value) == f"[USER_RAISED_EXCEPTION] {expected} SQLSTATE: P0001"


OPTIONS = {
    "spark.sql.parser.escapedStringLiterals": "true",
    "spark.sql.parser.quotedRegexColumnNames": "true",
    "of.this": "other",
}


def test_a_lookup_has_columns_and_keys_of_any_name(spark: SparkSession, service: Service) -> None:
    names = ["it's", 'a"quote', "back\\slash", "tick`", "dot.ted", "fünf", "%s", ".*", "${of.this}", "${env:HOME}"]
    value = {name: position for position, name in enumerate(names)}
    with Client(service.url) as client:
        client.table("names").put("fits", value)
        client.table("names").put("misfit", {**value, names[2]: SECRET})
    table = Table("names", service.url)
    # The JVM decodes timestamps, and the executor integers.
    integers = StructType([StructField(name, IntegerType()) for name in names])
    schemas = [integers, StructType([*integers.fields, StructField("t", TimestampType())])]
    key, others = "k`e'y.${of.this}", ["other", "amount(usd)", "(.*)", "${of.this}.", "${of.this}{}"]
    kept = StructType([StructField(name, StringType()) for name in (key, *others)])
    frame = spark.createDataFrame([("fits", *others)], kept)
    for name, option in OPTIONS.items():
        spark.conf.set(name, option)
    try:
        for schema in schemas:
            [row] = table.enrich(frame, key, schema).collect()
            known = {key: "fits", **{name: name for name in others}, **value}
            assert row.asDict() == {**known, **({"t": None} if "t" in schema.names else {})}
            with pytest.raises(Exception, match="USER_RAISED_EXCEPTION") as caught:
                table.enrich(keys(spark, "misfit"), "k", schema).collect()
            assert message(names[2], "string", '"misfit"', "int", "names") in str(caught.value)
    finally:
        for name in OPTIONS:
            spark.conf.unset(name)


def scanned(spark: SparkSession, service: Service, **options: str) -> DataFrame:
    reader = spark.read.format("tableside").options(url=service.url, table="simple", **options)
    return reader.schema(f"key string, {SCHEMA}").load()


@pytest.mark.parametrize("name", FAULTS)
def test_a_scan_names_column_key_and_types_after_a_short_traceback(
    spark: SparkSession, service: Service, name: str
) -> None:
    with pytest.raises(PythonException) as caught:
        scanned(spark, service, prefix=name).collect()
    column, kind, wanted = FAULTS[name]
    lines = str(caught.value).splitlines()
    assert lines[-1].partition("MismatchError: ")[2] == message(column, kind, json.dumps(name), wanted)
    assert len(lines) <= 6
    assert SECRET not in str(caught.value)


def test_a_member_that_does_not_fit_is_null_and_the_others_are_kept(spark: SparkSession, service: Service) -> None:
    looked_up = Table("simple", service.url).enrich(keys(spark, *VALUES, "absent"), "k", SCHEMA, on_mismatch="null")
    scan = scanned(spark, service, on_mismatch="null").withColumnRenamed("key", "k")
    for found in (looked_up.where("k != 'absent'").collect(), scan.collect()):
        assert {row.k for row in found} == set(VALUES)
        assert {row.k for row in found if row.n is not None} == {"nested", "several", "fits"}
        assert {row.k for row in found if row.t is not None} == {"fits"}
        assert next(row for row in found if row.k == "fits").s.a.b == [1]
    with pytest.raises(ValueError, match="on_mismatch is fail or null, not 'ignore'"):
        Table("simple", service.url).enrich(keys(spark, "fits"), "k", SCHEMA, on_mismatch="ignore")  # type: ignore[arg-type]


def test_a_composite_key_is_named(spark: SparkSession, service: Service) -> None:
    frame = spark.createDataFrame([("a'\n", 7)], "`key.who` string, at int")
    reader = spark.read.format("tableside").options(url=service.url, table="pairs")
    for found in (
        Table("pairs", service.url).enrich(frame, ["key.who", "at"], "n int"),
        reader.schema("who string, at int, n int").load(),
    ):
        with pytest.raises(Exception, match="does not fit") as caught:
            found.collect()
        assert message("n", "string", r"""["a'\n","7"]""", "int", "pairs") in str(caught.value)
