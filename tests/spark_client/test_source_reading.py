"""Reads by the data source: partitions of a table, filters on the key, and how the table is divided."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

from spark_client.sessions import jvm
from support.running import Service, running
from tableside_client import Client
from tableside_spark.datasource.options import default_splits

pytestmark = jvm("spark")

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
KEYS: dict[str, list[Any]] = {
    "texts": ["a", "ab", "abc", "b", "ü", "7", "007"],
    "numbers": [-1, 0, 7, 2**40],
    "pairs": [("a", 1), ("a", 2), ("ab", 1), ("b", 2)],
    "words": [("a", "x"), ("a", "xy"), ("b", "x")],
    "copies": ["a", "ab", "b"],
}
SCHEMAS = {
    "texts": "key string, n int",
    "numbers": "key long, n int",
    "pairs": "who string, at int, n int",
    "words": "what string, n int, who string",
    "copies": "partition int, key string, n int",
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    directory = tmp_path_factory.mktemp("reading")
    path = directory / "tableside.yaml"
    memory = {name: {"kind": "memory"} for name in ("s", "p0", "p1", "p2")}
    keys = {"numbers": {"id": "integer"}, "pairs": {"who": "string", "at": "integer"}}
    keys |= {"words": {"who": "string", "what": "string"}}
    tables: dict[str, Any] = {name: {"store": "s"} for name in KEYS}
    for name, key in keys.items():
        tables[name]["key"] = key
    tables["copies"]["store"] = "shards"
    stores = {**memory, "shards": {"kind": "partitioned", "partitions": ["p0", "p1", "p2"]}}
    tables["nulls"] = {"store": "s"}
    path.write_text(json.dumps({"stores": stores, "tables": tables}))
    with running(directory, path) as service:
        for table in KEYS:
            fill(service, table)
        yield service


def fill(service: Service, table: str) -> None:
    partitions = {"partitions": "all"} if table == "copies" else {}
    puts = [{"op": "put", "key": key, "value": {"n": number}, **partitions} for number, key in enumerate(KEYS[table])]
    answer = httpx.post(f"{service.url}/v1/tables/{table}/batch", json={"operations": puts}).json()
    assert all(result["status"] == 204 for result in answer["results"]), answer


@pytest.fixture
def pushing(spark: SparkSession) -> Iterator[SparkSession]:
    spark.conf.set(PUSHDOWN, "true")
    yield spark
    spark.conf.unset(PUSHDOWN)


def loaded(spark: SparkSession, service: Service, table: str, **options: Any) -> DataFrame:
    reader = spark.read.format("tableside").options(url=service.url, table=table, **options)
    if table == "numbers":
        reader = reader.option("key", "key")
    return reader.schema(SCHEMAS[table]).load()


def rows(frame: DataFrame) -> list[str]:
    return sorted(map(str, frame.collect()))


def operations(service: Service, table: str) -> Counter[str]:
    """Return the number of operations, scans and splits of a table so far."""
    found: Counter[str] = Counter()
    for line in httpx.get(f"{service.url}/metrics").text.splitlines():
        if line.startswith("tableside_operations_total{") and f'table="{table}"' in line:
            found[line.partition('operation="')[2].partition('"')[0]] += int(float(line.rpartition(" ")[2]))
    return found


def done(service: Service, table: str, frame: DataFrame) -> tuple[list[str], Counter[str]]:
    """Return the rows of a frame, and the operations that it needed."""
    before = operations(service, table)
    return rows(frame), operations(service, table) - before


@pytest.mark.parametrize(
    ("table", "where", "expected"),
    [
        ("texts", "key in ('a', 'ü', 'absent', null) and n < 5", {"get": 3}),
        ("texts", "key = 'a' and key = 'b'", {}),
        ("texts", "key = 'a' or n = 3", {"splits": 1, "scan": None}),
        ("numbers", "key = '7'", {"get": 1}),
        ("pairs", "who in ('a', 'b') and at in (1, 2)", {"get": 4}),
        ("pairs", "who in ('a', 'b') and n > 0", {"scan": 2}),
        ("pairs", "at = 2", {"splits": 1, "scan": None}),
        ("words", "who = 'a' and what = 'x'", {"get": 1}),
        ("copies", "key = 'a' and partition in (0, 2)", {"get": 2}),
    ],
)
def test_filters_on_the_key_are_pushed_down_with_the_same_rows(
    pushing: SparkSession, service: Service, table: str, where: str, expected: dict[str, int | None]
) -> None:
    unpushed = rows(loaded(pushing, service, table).where(where))
    found, needed = done(service, table, loaded(pushing, service, table, pushdown="true").where(where))
    assert found == unpushed
    assert needed.keys() == expected.keys()
    assert all(count is None or needed[kind] == count for kind, count in expected.items()), needed


def test_a_column_of_another_type_than_the_key_is_not_pushed(pushing: SparkSession, service: Service) -> None:
    reader = pushing.read.format("tableside").options(url=service.url, table="numbers", key="key", pushdown="true")
    frame = reader.schema("key string, n int").load()
    assert [row.n for row in frame.where("key = '7'").collect()] == [2]
    assert reader.schema("key string, n int").load().where("key = '007'").collect() == []


def test_without_sparks_setting_the_option_is_refused_and_its_default_reads_everything(
    spark: SparkSession, service: Service
) -> None:
    with pytest.raises(Exception, match=PUSHDOWN):
        loaded(spark, service, "texts", pushdown="true").where("key = 'a'").collect()
    found, needed = done(service, "texts", loaded(spark, service, "texts").where("key = 'a'"))
    assert (len(found), needed["get"]) == (1, 0)


def test_spark_keeps_the_last_pushed_filters_for_all_uses_of_a_loaded_frame(
    pushing: SparkSession, service: Service
) -> None:
    """The reason for the option: if this fails, a newer Spark is correct, and the option's default can change."""
    frame = loaded(pushing, service, "texts", pushdown="true")
    assert frame.where("key = 'a'").count() == 1
    assert frame.count() == 1


def test_every_copy_in_a_partitioned_table_is_read_with_its_partition(spark: SparkSession, service: Service) -> None:
    everywhere = {(key, index) for key in KEYS["copies"] for index in range(3)}
    frame = loaded(spark, service, "copies")
    assert {(row.key, row.partition) for row in frame.collect()} == everywhere
    plain = spark.read.format("tableside").options(url=service.url, table="copies").load()
    assert plain.columns == ["key", "value", "partition"]
    assert {(row.key, row.partition) for row in plain.collect()} == everywhere
    for options, indexes in (({"partition": "1"}, {1}), ({"partitions": "2, 0"}, {0, 2})):
        chosen = loaded(spark, service, "copies", **options)
        assert {(row.key, row.partition) for row in chosen.collect()} == {(k, i) for k, i in everywhere if i in indexes}


def test_the_options_select_by_prefix_and_by_the_first_part_of_the_key(spark: SparkSession, service: Service) -> None:
    assert loaded(spark, service, "texts", prefix="ab").count() == 2
    assert {row.at for row in loaded(spark, service, "pairs", partition="a").collect()} == {1, 2}
    assert loaded(spark, service, "words", partition="a", prefix="xy").count() == 1


@pytest.mark.parametrize(("table", "key"), [("texts", "value"), ("texts", "Value"), ("copies", "partition")])
def test_without_a_schema_a_key_column_has_a_name_of_its_own(
    spark: SparkSession, service: Service, table: str, key: str
) -> None:
    reader = spark.read.format("tableside").options(url=service.url, table=table, key=key)
    with pytest.raises(Exception, match=f"the column {key.lower()} is not the key: set the option key to another name"):
        reader.load()
    assert reader.schema(f"{key} string, n int").load().count() > 0


def test_a_key_that_the_schema_does_not_fit_is_explained(spark: SparkSession, service: Service) -> None:
    reader = spark.read.format("tableside").options(url=service.url, key="key")
    with pytest.raises(Exception, match="table numbers: a key does not fit the column key of type int32: change the"):
        reader.schema("key int, n int").load("numbers").collect()
    with pytest.raises(Exception, match="the option key has 1 columns, but the key of table pairs has 2 parts"):
        reader.load("pairs").collect()


@pytest.mark.parametrize(("columns", "name"), [("n int NOT NULL", "n"), ("s struct<x: int NOT NULL>", "s")])
def test_a_null_that_the_schema_excludes_fails_with_its_column_and_key(
    spark: SparkSession, service: Service, columns: str, name: str
) -> None:
    with Client(service.url) as client:
        client.table("nulls").load([("a", {"n": 1, "s": {"x": 1}}), ("b", {"s": {}})])
    reader = spark.read.format("tableside").options(url=service.url, table="nulls")
    with pytest.raises(Exception, match=f'table nulls: column {name} has a null for key "b", but the schema excludes'):
        reader.schema(f"key string, {columns}").load().collect()
    assert reader.schema(f"key string NOT NULL, {columns.replace(' NOT NULL', '')}").load().count() == 2


def test_a_large_table_is_divided_by_the_cpus_and_read_in_large_pages(spark: SparkSession, service: Service) -> None:
    with Client(service.url) as client:
        count = len(client.table("texts").splits(default_splits()))
    frame = loaded(spark, service, "texts").select(col("key"))
    assert frame.rdd.getNumPartitions() == count
    assert loaded(spark, service, "texts", splits="1").rdd.getNumPartitions() == 1
    _, needed = done(service, "texts", loaded(spark, service, "texts", splits="1"))
    assert needed == {"splits": 1, "scan": 1}
