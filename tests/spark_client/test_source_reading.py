"""Reads by the data source: partitions of a table, filters on the key, and how the table is divided."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql.functions import col

from spark_client.sessions import jvm
from support.running import Service, running
from tableside_client import Client
from tableside_spark import Table
from tableside_spark.datasource.options import default_splits

pytestmark = jvm("spark")

COPIES = [("x", [0], 1), ("x", [2], 2), ("y", [1], 3)]
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
    stores: dict[str, Any] = {name: {"kind": "memory"} for name in ("s", "p0", "p1", "p2")}
    stores["shards"] = {"kind": "partitioned", "partitions": ["p0", "p1", "p2"]}
    tables: dict[str, Any] = {name: {"store": "s"} for name in ("texts", "nulls")}
    tables["numbers"] = {"store": "s", "key": {"id": "integer"}}
    tables["pairs"] = {"store": "s", "key": {"who": "string", "at": "integer"}}
    tables["words"] = {"store": "s", "key": {"who": "string", "what": "string"}}
    tables |= {name: {"store": "shards"} for name in ("copies", "shards", "shards_copy")}
    tables |= {name: {"store": "s"} for name in ("values", "values_copy", "given")}
    tables |= {name: {"store": "s", "key": {"who": "string", "at": "string"}} for name in ("swapped", "swapped_copy")}
    path.write_text(json.dumps({"stores": stores, "tables": tables}))
    with running(directory, path) as service:
        for table in KEYS:
            fill(service, table)
        puts = [{"op": "put", "key": key, "value": {"n": n}, "partitions": to} for key, to, n in COPIES]
        httpx.post(f"{service.url}/v1/tables/shards/batch", json={"operations": puts}).raise_for_status()
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
        ("numbers", "key = '7'", {"get": 1}),
        ("pairs", "who in ('a', 'b') and at in (1, 2)", {"get": 4}),
        ("pairs", "who in ('a', 'b') and n > 0", {"scan": 2}),
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


def test_without_sparks_setting_the_option_is_refused_and_its_default_reads_everything(
    spark: SparkSession, service: Service
) -> None:
    with pytest.raises(Exception, match=PUSHDOWN):
        loaded(spark, service, "texts", pushdown="true").where("key = 'a'").collect()
    found, needed = done(service, "texts", loaded(spark, service, "texts").where("key = 'a'"))
    assert (len(found), needed["get"]) == (1, 0)


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


# Columns have the same meaning in reads and writes.


def reader(spark: SparkSession, service: Service, table: str, **options: Any) -> DataFrameReader:
    return spark.read.format("tableside").options(url=service.url, table=table, **options)


def save(frame: DataFrame, service: Service, table: str, **options: Any) -> None:
    frame.write.format("tableside").options(url=service.url, table=table, **options).mode("append").save()


def stored(service: Service, table: str) -> list[tuple[Any, ...]]:
    with Client(service.url) as client:
        rows = [row for page in client.arrow_table(table).scan() for row in page.to_pylist()]
    return sorted((str(row["key"]), row.get("partition"), json.loads(row["value"])) for row in rows)


def test_a_string_column_named_value_is_a_member_and_a_read_without_a_schema_is_the_text(
    spark: SparkSession, service: Service
) -> None:
    frame = spark.createDataFrame([("k1", "x1"), ("k2", "x2")], "key string, value string")
    save(frame, service, "values", key="key")
    assert sorted(reader(spark, service, "values").schema(frame.schema).load().collect()) == frame.collect()
    plain = reader(spark, service, "values").load()
    assert [row.value for row in plain.sort("key").collect()] == ['{"value":"x1"}', '{"value":"x2"}']
    save(plain, service, "values_copy", key="key")
    assert stored(service, "values_copy") == stored(service, "values")
    with pytest.raises(Exception, match=r"column n has no place in the record: column value is the JSON text"):
        save(plain.withColumn("n", col("key")), service, "values_copy", key="key")
    save(plain.withMetadata("value", {}).where("key = 'k1'"), service, "values_copy", key="key")
    assert stored(service, "values_copy")[0] == ("k1", None, {"value": '{"value":"x1"}'})


def test_the_option_value_names_the_text_in_reads_and_writes(spark: SparkSession, service: Service) -> None:
    frame = spark.createDataFrame([("a", '{"n":1,"value":"x"}')], "value string, doc string")
    save(frame, service, "given", key="value", value="doc")
    assert stored(service, "given") == [("a", None, {"n": 1, "value": "x"})]
    named = reader(spark, service, "given", key="value", value="doc")
    assert named.load().collect() == frame.collect()
    [row] = named.schema("n int, doc string, value string").load().collect()
    assert row.asDict() == {"n": 1, "doc": '{"n":1,"value":"x"}', "value": "a"}
    with pytest.raises(Exception, match="column doc is int"):
        reader(spark, service, "given", value="doc").schema("key string, doc int").load().collect()
    with pytest.raises(Exception, match="column doc is null in 1 rows"):
        save(frame.selectExpr("value", "cast(null as string) doc"), service, "given", key="value", value="doc")


def test_a_copy_has_composite_keys_and_the_partitions_of_its_records(spark: SparkSession, service: Service) -> None:
    save(spark.createDataFrame([("a", "b", 1), ("b", "a", 2)], "who string, at string, n int"), service, "swapped",
         key="at, who")  # fmt: skip
    save(reader(spark, service, "swapped").load(), service, "swapped_copy", key="at,who")
    assert stored(service, "swapped_copy") == stored(service, "swapped")
    save(reader(spark, service, "shards").load(), service, "shards_copy", key="key")
    assert stored(service, "shards_copy") == [(key, to[0], {"n": n}) for key, to, n in COPIES]
    typed = reader(spark, service, "shards").schema("Partition int, n int, key string").load()
    with pytest.raises(Exception, match="column Partition is string, not an integer"):
        save(typed.withColumn("Partition", col("key")), service, "shards_copy", key="key")


@pytest.mark.parametrize(
    ("table", "schema", "options", "missing"),
    [
        ("values", "KEY string, value string", {}, "key"),
        ("swapped", "who string, AT string, n int", {}, "at"),
    ],
)
def test_a_key_column_that_the_schema_lacks_or_names_in_another_case_is_refused(
    spark: SparkSession, service: Service, table: str, schema: str, options: dict[str, str], missing: str
) -> None:
    with pytest.raises(Exception, match=f"table {table}: there is no column '{missing}', only "):
        reader(spark, service, table, **options).schema(schema).load().collect()
    frame = spark.createDataFrame([], schema)
    with pytest.raises(Exception, match="there is no column '"):
        save(frame, service, table, **{"key": missing, **options})


def test_composite_key_columns_are_matched_by_name_and_never_exchanged(spark: SparkSession, service: Service) -> None:
    save(spark.createDataFrame([("p", "q", 1)], "AT string, Who string, n int"), service, "swapped", key="AT,Who")
    assert ("{'who': 'q', 'at': 'p'}", None, {"n": 1}) in stored(service, "swapped")
    exchanged = spark.createDataFrame([("p", "q", 1)], "at string, user string, n int")
    with pytest.raises(Exception, match=r"the key column at has the name of another part of the key \(who, at\)"):
        save(exchanged, service, "swapped", key="at,user")
    with pytest.raises(ValueError, match=r"the key column at has the name of another part of the key \(who, at\)"):
        Table("swapped", service.url).put(exchanged, ["at", "user"])
