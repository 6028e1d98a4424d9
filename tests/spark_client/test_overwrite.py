"""The format's mode `overwrite`: the table has the rows of the query, and a query that fails deletes nothing."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import (
    DataFrame,
    SparkSession,
    functions as F,  # noqa: N812 - its name everywhere
)
from pyspark.sql.functions import col, lit

from spark_client.sessions import jvm
from support.running import Service, running
from tableside_client import Client

pytestmark = jvm("spark")

OLD = 6_000
"""More records than a page of the deletes."""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    directory = tmp_path_factory.mktemp("overwrite")
    stores: dict[str, Any] = {name: {"kind": "memory"} for name in ("s", "p0", "p1")}
    stores["shards"] = {"kind": "partitioned", "partitions": ["p0", "p1"]}
    tables: dict[str, Any] = {
        "plain": {"store": "s"},
        "pairs": {"store": "s", "key": {"who": "string", "at": "integer"}},
        "shards": {"store": "shards"},
        "kept": {"store": "s"},
    }
    (directory / "t.yaml").write_text(json.dumps({"stores": stores, "tables": tables}))
    with running(directory, directory / "t.yaml") as service:
        yield service


def save(frame: DataFrame, service: Service, table: str, key: str, **options: str) -> None:
    options = {"url": service.url, "table": table, "key": key, "truncate": "true", **options}
    frame.write.format("tableside").options(**options).mode("overwrite").save()


def stored(service: Service, table: str) -> dict[str, Any]:
    with Client(service.url) as client:
        rows = [row for page in client.arrow_table(table).scan() for row in page.to_pylist()]
    return {json.dumps([row["key"], row.get("partition")]): json.loads(row["value"]) for row in rows}


@pytest.mark.parametrize(("table", "key"), [("plain", "k"), ("pairs", "who,at"), ("shards", "k")])
def test_the_table_has_the_rows_of_the_query_and_no_others(
    spark: SparkSession, service: Service, table: str, key: str
) -> None:
    keys = [F.concat(lit("k"), "id").alias("k")] if key == "k" else [lit("k").alias("who"), col("id").alias("at")]
    parts = [(col("id") % 2).cast("int").alias("partition")] if table == "shards" else []
    rows = spark.range(OLD).select(*keys, *parts, col("id").alias("n"))
    for count, frame in (
        (OLD, rows),
        (30, rows.where("n % 200 = 7")),
        (30, rows.where("n % 200 = 7")),
        (1, rows.limit(1)),
    ):
        save(frame.repartition(3), service, table, key)
        assert len(stored(service, table)) == count
    newest = rows.where("n in (0, 5999)").withColumn("n", -col("n"))
    save(newest, service, table, key)
    assert sorted(value["n"] for value in stored(service, table).values()) == [-5999, 0]
    save(rows.limit(0), service, table, key)
    assert stored(service, table) == {}


def test_a_query_or_a_write_that_fails_deletes_nothing(spark: SparkSession, service: Service) -> None:
    with Client(service.url) as client:
        client.table("kept").load([(f"k{at}", {"n": at}) for at in range(100)])
        client.table("kept").put("newer", {"n": 1}, order=7)
    before = stored(service, "kept")
    rows = spark.range(100, 200).select(
        F.concat(lit("k"), "id").alias("k"), col("id").alias("n"), lit("text").alias("s")
    )
    broken = F.when(col("n") == 199, F.raise_error(lit("broken")).cast("double")).otherwise(lit(1.0))
    for frame, options, match in (
        (rows.withColumn("f", broken), {}, "broken"),
        (rows.withColumn("f", lit(float("nan"))), {}, "column f contains a NaN"),
        (rows.withColumn("k", lit("")), {}, "invalid_operation"),
        (rows, {"truncate": "false"}, "truncate"),
        (rows, {"truncate": "perhaps"}, "truncate is true or false"),
        (rows, {"sequence_by": "n"}, "sequence_by"),
        (rows, {"key": "absent"}, "there is no column 'absent'"),
    ):
        with pytest.raises(Exception, match=match):
            save(frame, service, "kept", **{"key": "k"} | options)
        assert stored(service, "kept").items() >= before.items()


def test_a_query_may_read_the_table_that_it_overwrites(spark: SparkSession, service: Service) -> None:
    with Client(service.url) as client:
        client.table("plain").load([(f"k{at:04}", {"n": at}) for at in range(OLD)])
    before = stored(service, "plain")
    same = spark.read.format("tableside").options(url=service.url, table="plain").load()
    save(same.where("key < 'k0100'"), service, "plain", "key")
    assert stored(service, "plain") == {key: value for key, value in before.items() if key < '["k0100'}
