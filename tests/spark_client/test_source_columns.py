"""The format's columns have the same meaning in reads and writes, and a task's last row of a key is stored."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql.functions import col

from spark_client.sessions import jvm
from support.running import Service, running
from tableside_client import Client
from tableside_spark import Table

pytestmark = jvm("spark")

PAIRS = {"who": "string", "at": "string"}
COPIES = [("x", [0], 1), ("x", [2], 2), ("y", [1], 3)]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    directory = tmp_path_factory.mktemp("columns")
    stores: dict[str, Any] = {name: {"kind": "memory"} for name in ("s", "p0", "p1", "p2")}
    stores["shards"] = {"kind": "partitioned", "partitions": ["p0", "p1", "p2"]}
    tables: dict[str, Any] = {name: {"store": "s"} for name in ("texts", "texts_copy", "streamed", "given", "viewed")}
    tables |= {name: {"store": "s", "key": PAIRS} for name in ("pairs", "pairs_copy")}
    tables |= {name: {"store": "shards"} for name in ("shards", "shards_copy")}
    (directory / "t.yaml").write_text(json.dumps({"stores": stores, "tables": tables}))
    with running(directory, directory / "t.yaml") as service:
        puts = [{"op": "put", "key": key, "value": {"n": n}, "partitions": to} for key, to, n in COPIES]
        httpx.post(f"{service.url}/v1/tables/shards/batch", json={"operations": puts}).raise_for_status()
        yield service


def reader(spark: SparkSession, service: Service, table: str, **options: Any) -> DataFrameReader:
    return spark.read.format("tableside").options(url=service.url, table=table, **options)


def save(frame: DataFrame, service: Service, table: str, **options: Any) -> None:
    frame.write.format("tableside").options(url=service.url, table=table, **options).mode("append").save()


def stored(service: Service, table: str) -> list[tuple[Any, ...]]:
    with Client(service.url) as client:
        rows = [row for page in client.arrow_table(table).scan() for row in page.to_pylist()]
    return sorted((str(row["key"]), row.get("partition"), json.loads(row["value"])) for row in rows)


def test_a_string_column_named_value_is_a_member_and_a_read_without_a_schema_is_the_text(
    spark: SparkSession, service: Service, tmp_path: Path
) -> None:
    frame = spark.createDataFrame([("k1", "x1"), ("k2", "x2")], "key string, value string")
    save(frame, service, "texts", key="key")
    assert sorted(reader(spark, service, "texts").schema(frame.schema).load().collect()) == frame.collect()
    plain = reader(spark, service, "texts").load()
    assert [row.value for row in plain.sort("key").collect()] == ['{"value":"x1"}', '{"value":"x2"}']
    save(plain, service, "texts_copy", key="key")
    assert stored(service, "texts_copy") == stored(service, "texts")
    files = str(tmp_path / "files")
    plain.write.parquet(files)
    stream = spark.readStream.schema(spark.read.parquet(files).schema).parquet(files)
    options = {"url": service.url, "table": "streamed", "key": "key", "checkpointLocation": str(tmp_path / "c")}
    query = stream.writeStream.format("tableside").options(**options).trigger(availableNow=True).start()
    query.awaitTermination(120)
    assert stored(service, "streamed") == stored(service, "texts")
    with pytest.raises(Exception, match=r"column n has no place in the record: column value is the JSON text"):
        save(plain.withColumn("n", col("key")), service, "texts_copy", key="key")
    save(plain.withMetadata("value", {}).where("key = 'k1'"), service, "texts_copy", key="key")
    assert stored(service, "texts_copy")[0] == ("k1", None, {"value": '{"value":"x1"}'})


def test_the_option_value_names_the_text_in_reads_and_writes(spark: SparkSession, service: Service) -> None:
    frame = spark.createDataFrame([("a", '{"n":1,"value":"x"}')], "value string, doc string")
    save(frame, service, "given", key="value", value="doc")
    assert stored(service, "given") == [("a", None, {"n": 1, "value": "x"})]
    named = reader(spark, service, "given", key="value", value="doc")
    assert named.load().collect() == frame.collect()
    [row] = named.schema("n int, doc string, value string").load().collect()
    assert row.asDict() == {"n": 1, "doc": '{"n":1,"value":"x"}', "value": "a"}
    for schema, match in (
        ("key string, n int", "there is no column 'doc'"),
        ("key string, doc int", "column doc is int"),
    ):
        with pytest.raises(Exception, match=match):
            reader(spark, service, "given", value="doc").schema(schema).load().collect()
    with pytest.raises(Exception, match="column doc is null in 1 rows"):
        save(frame.selectExpr("value", "cast(null as string) doc"), service, "given", key="value", value="doc")


def test_a_copy_has_composite_keys_and_the_partitions_of_its_records(spark: SparkSession, service: Service) -> None:
    save(spark.createDataFrame([("a", "b", 1), ("b", "a", 2)], "who string, at string, n int"), service, "pairs",
         key="at, who")  # fmt: skip
    save(reader(spark, service, "pairs").load(), service, "pairs_copy", key="at,who")
    assert stored(service, "pairs_copy") == stored(service, "pairs")
    save(reader(spark, service, "shards").load(), service, "shards_copy", key="key")
    assert stored(service, "shards_copy") == [(key, to[0], {"n": n}) for key, to, n in COPIES]
    typed = reader(spark, service, "shards").schema("Partition int, n int, key string").load()
    save(typed.withColumn("n", col("n") + 10), service, "shards_copy", key="key")
    assert stored(service, "shards_copy") == [(key, to[0], {"n": n + 10}) for key, to, n in COPIES]
    with pytest.raises(Exception, match="column Partition is string, not an integer"):
        save(typed.withColumn("Partition", col("key")), service, "shards_copy", key="key")


@pytest.mark.parametrize(
    ("table", "schema", "options", "missing"),
    [
        ("texts", "KEY string, value string", {}, "key"),
        ("texts", "id string, value string", {"key": "ID"}, "ID"),
        ("pairs", "who string, AT string, n int", {}, "at"),
        ("pairs", "who string, n int", {"key": "who,since"}, "since"),
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
    save(spark.createDataFrame([("p", "q", 1)], "AT string, Who string, n int"), service, "pairs", key="AT,Who")
    assert ("{'who': 'q', 'at': 'p'}", None, {"n": 1}) in stored(service, "pairs")
    exchanged = spark.createDataFrame([("p", "q", 1)], "at string, user string, n int")
    with pytest.raises(Exception, match=r"the key column at has the name of another part of the key \(who, at\)"):
        save(exchanged, service, "pairs", key="at,user")
    with pytest.raises(ValueError, match=r"the key column at has the name of another part of the key \(who, at\)"):
        Table("pairs", service.url).put(exchanged, ["at", "user"])


def test_a_table_of_sparks_catalog_is_refused_and_a_temporary_view_works(spark: SparkSession, service: Service) -> None:
    options = f"OPTIONS (url '{service.url}', table 'viewed', key 'key')"
    spark.sql(f"CREATE TEMPORARY VIEW viewed (key string, n int) USING tableside {options}")
    spark.sql("INSERT INTO viewed VALUES ('a', 1)")
    assert [tuple(row) for row in spark.sql("SELECT * FROM viewed").collect()] == [("a", 1)]
    spark.sql("DROP VIEW viewed")
    explained = "use CREATE TEMPORARY VIEW"
    with pytest.raises(Exception, match=explained):
        spark.sql(f"CREATE TABLE listed USING tableside {options}")
    spark.sql(f"CREATE TABLE listed (key string, n int) USING tableside {options}")
    try:
        for statement in ("SELECT * FROM listed", "INSERT INTO listed VALUES ('a', 1)"):
            with pytest.raises(Exception, match=explained):
                spark.sql(statement).collect()
    finally:
        spark.sql("DROP TABLE listed")
