"""Replacing a table from Spark: the table has exactly the frame's records, and a job that fails changes nothing."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import (
    DataFrame,
    SparkSession,
    functions as F,  # noqa: N812 - its name everywhere
)
from pyspark.sql.functions import col, lit

from spark_client.sessions import jvm, stored
from support.running import Service, running
from tableside_client import Client, PreconditionFailed, TablesideError
from tableside_spark import Table, TableWriteError

pytestmark = jvm("spark")

ROWS = 12_000
"""More than a page of a scan, and than a request."""


@pytest.fixture(scope="module", params=["rocksdb", "redis"])
def service(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    directory = tmp_path_factory.mktemp("replace")
    remote = {"kind": "redis", "url": request.getfixturevalue("redis_url")} if request.param == "redis" else None
    store = remote or {"kind": "rocksdb", "path": str(directory / "data")}
    tables: dict[str, Any] = {
        name: {"store": "s", "name": f"replace-{request.param}-{name}", "generations": True}
        for name in ("plain", "format", "read", "slow", "letters")
    }
    tables["slow"]["generations_idle_s"] = 2
    tables["gone"] = {**tables["read"], "name": f"replace-{request.param}-gone", "generations_kept": 0}
    tables["gone"]["deadline_s"] = 1
    tables["without"] = {"store": "s", "name": f"replace-{request.param}-without"}
    (directory / "t.yaml").write_text(json.dumps({"stores": {"s": store}, "tables": tables}))
    with running(directory, directory / "t.yaml") as service:
        yield service


def rows(spark: SparkSession, count: int, n: int) -> DataFrame:
    return spark.range(count).select(F.concat(lit("k"), "id").alias("k"), lit(n).alias("n"))


def values(count: int, n: int) -> dict[str, Any]:
    return {f"k{at}": {"n": n} for at in range(count)}


def states(service: Service, table: str) -> list[str]:
    with Client(service.url) as client:
        return [one.state for one in client.table(table).generations()]


def test_the_table_has_the_records_of_the_frame_and_no_others(spark: SparkSession, service: Service) -> None:
    table = Table("plain", service.url)
    table.put(rows(spark, ROWS, 0), "k")
    summary = table.replace(rows(spark, ROWS - 1, 1), "k")
    assert (summary.applied, summary.failed) == (ROWS - 1, 0)
    assert stored(service, "plain") == values(ROWS - 1, 1)
    assert stored(service, "plain@1") == values(ROWS, 0)
    versions = spark.createDataFrame(
        [("a", 1, None, 5), ("a", 2, "x", 4), ("b", 3, None, 1)], "k string, n int, s string, at long"
    )
    for options, wanted in (
        ({"order_by": "n"}, {"a": {"n": 2, "s": "x", "at": 4}, "b": {"n": 3, "s": None, "at": 1}}),
        ({"sequence_by": "at", "columns": ["n"]}, {"a": {"n": 1}, "b": {"n": 3}}),
        (
            {"order_by": "n", "columns": ["n", "s"], "nulls": "omit", "ttl_s": 600.0},
            {"a": {"n": 2, "s": "x"}, "b": {"n": 3}},
        ),
    ):
        assert table.replace(versions, "k", **options).failed == 0
        assert stored(service, "plain") == wanted
    with Client(service.url) as client:
        assert client.table("plain").record("a").expires_at
    assert table.replace(versions.limit(0), "k", allow_empty=True).applied == 0
    assert stored(service, "plain") == {}
    assert table.stats.writes == 6
    assert states(service, "plain") == ["kept", "current"]


def test_a_replacement_that_fails_leaves_the_old_records(spark: SparkSession, service: Service) -> None:
    table = Table("plain", service.url)
    table.put(rows(spark, 2, 7), "k")
    before, count = stored(service, "plain"), len(states(service, "plain"))
    broken = F.when(col("k") == "k99", F.raise_error(lit("broken")).cast("int")).otherwise(lit(1))
    none = rows(spark, 100, 1).where("n = 2")
    stream = spark.readStream.format("rate").load().select(col("value").alias("k"))
    for frame, options, match in (
        (rows(spark, 100, 1).withColumn("n", broken), {}, "broken"),
        (rows(spark, 100, 1).withColumn("k", F.when(col("k") != "k5", col("k"))), {}, "null"),
        (rows(spark, 2, 1).withColumn("n", lit(float("nan"))), {"on_error": "collect"}, "allow_empty"),
        (none, {}, "allow_empty"),
        (none, {"columns": ["absent"]}, "absent"),
        (stream, {}, "foreachBatch"),
    ):
        with pytest.raises(Exception, match=match):
            table.replace(frame, "k", **options)
        assert stored(service, "plain") == before
        assert len(states(service, "plain")) == count
    with pytest.raises(TablesideError, match="generations: true"):
        Table("without", service.url).replace(rows(spark, 1, 1), "k")


def test_rows_that_fail_are_collected_or_handled(spark: SparkSession, service: Service) -> None:
    table = Table("plain", service.url)
    frame = rows(spark, 10, 1).withColumn("k", F.when(col("k") != "k9", col("k")))
    summary = table.replace(frame, "k", on_error="collect", note="daily")
    assert (summary.applied, summary.failed) == (9, 1)
    assert summary.failures is not None
    assert [row["code"] for row in summary.failures.collect()] == ["invalid_operation"]
    assert stored(service, "plain") == values(9, 1)
    letters = Table("letters", service.url)
    assert table.replace(frame.where("k is null or k < 'k5'"), "k", on_error=letters).failed == 1
    assert (len(stored(service, "plain")), len(stored(service, "letters"))) == (5, 1)


def test_a_newer_activation_is_not_undone(spark: SparkSession, service: Service) -> None:
    """Another generation is activated while a job runs, as two jobs that run at once do."""
    table = Table("plain", service.url)

    def meanwhile(newer: bool) -> DataFrame:
        url = service.url

        def activate(batches: Iterator[Any]) -> Iterator[Any]:
            with Client(url) as client:
                plain = client.table("plain")
                loading = [one.generation for one in plain.generations() if one.state == "loading"]
                plain.activate(plain.create_generation().generation if newer else loading[0])
            yield from batches

        return rows(spark, 10, 1).coalesce(1).mapInArrow(activate, "k string, n int")

    with pytest.raises(TableWriteError, match="generation_not_found") as raised:
        table.replace(meanwhile(newer=True), "k")
    assert "another one was activated" in raised.value.__notes__[0]
    with Client(service.url) as client:
        client.table("plain").create_generation()
    with pytest.raises(PreconditionFailed):
        table.replace(meanwhile(newer=False), "k")
    assert stored(service, "plain") == {}
    assert "loading" not in states(service, "plain")


def test_a_job_may_compute_longer_than_a_generation_may_be_idle(spark: SparkSession, service: Service) -> None:
    def slow(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            time.sleep(7)
            yield batch

    frame = rows(spark, 10, 1).coalesce(1).mapInArrow(slow, "k string, n int")
    assert Table("slow", service.url).replace(frame, "k").applied == 10
    assert stored(service, "slow") == values(10, 1)


def overwrite(frame: DataFrame, service: Service, table: str, **options: str) -> None:
    given = {"url": service.url, "table": table, "key": "k", **options}
    frame.write.format("tableside").options(**given).mode("overwrite").save()


def test_mode_overwrite_replaces_a_table_with_generations(spark: SparkSession, service: Service) -> None:
    overwrite(rows(spark, ROWS, 1), service, "format")
    overwrite(rows(spark, ROWS - 1, 2).repartition(3), service, "format")
    assert stored(service, "format") == values(ROWS - 1, 2)
    assert stored(service, "format@2") == values(ROWS, 1)
    broken = F.when(col("k") == "k99", F.raise_error(lit("broken")).cast("int")).otherwise(lit(1))
    for frame, match in (
        (rows(spark, 100, 3).withColumn("n", broken), "broken"),
        (rows(spark, 100, 3).withColumn("k", lit("")), "invalid_operation"),
        (rows(spark, 100, 3).where("n = 2"), "allow_empty"),
    ):
        with pytest.raises(Exception, match=match):
            overwrite(frame, service, "format")
        assert states(service, "format") == ["kept", "current"]
        assert len(stored(service, "format")) == ROWS - 1
    same = spark.read.format("tableside").options(url=service.url, table="format").schema("key string, n int").load()
    overwrite(same.select(col("key").alias("k"), (col("n") + 1).alias("n")), service, "format")
    assert stored(service, "format") == values(ROWS - 1, 3)
    for options in ({"allow_empty": "true"}, {"truncate": "true"}):
        overwrite(rows(spark, 100, 3).where("n = 2"), service, "format", **options)
        assert stored(service, "format") == {}
    with pytest.raises(Exception, match="truncate"):
        overwrite(rows(spark, 1, 1), service, "without")
