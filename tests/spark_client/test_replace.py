"""Replacing the records of a table: it has exactly the frame's records, and a job that fails changes nothing."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import (
    DataFrame,
    SparkSession,
    functions as F,  # noqa: N812 - its name everywhere
)
from pyspark.sql.functions import col, lit

from spark_client import replace_job
from spark_client.driver_process import Driver
from spark_client.sessions import jvm, stored
from support.running import Service, running
from tableside_client import Client, Retries, TablesideError
from tableside_spark import Table, TableWriteError

pytestmark = jvm("spark")

ROWS = 12_000
"""More than a page of a scan, and than a request."""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    directory = tmp_path_factory.mktemp("replace")
    stores: dict[str, Any] = {name: {"kind": "rocksdb", "path": str(directory / name)} for name in ("s", "p0", "p1")}
    stores["shards"] = {"kind": "partitioned", "partitions": ["p0", "p1"]}
    names = ("plain", "format", "read", "slow", "killed", "letters", "gone", "busy", "late")
    tables: dict[str, Any] = {name: {"store": "s", "generations": True} for name in names}
    tables["slow"]["generations_idle_s"] = tables["killed"]["generations_idle_s"] = 2
    tables["gone"]["generations_kept"] = 0
    tables["busy"] |= {"deadline_s": 0.5, "write": {"rate_per_s": 0.001, "burst": 1}}
    tables |= {name: {"store": "s"} for name in ("without", "simple", "kept")}
    tables |= {"pairs": {"store": "s", "key": {"who": "string", "at": "integer"}}, "shards": {"store": "shards"}}
    (directory / "t.yaml").write_text(json.dumps({"stores": stores, "tables": tables}))
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
    ):
        assert table.replace(versions, "k", **options).failed == 0
        assert stored(service, "plain") == wanted
    assert table.replace(versions.limit(0), "k", allow_empty=True).applied == 0
    assert stored(service, "plain") == {}
    assert table.stats.writes == 5
    assert states(service, "plain") == ["kept", "current"]


def test_a_generation_is_read_by_its_number_and_a_late_task_changes_nothing(
    spark: SparkSession, service: Service
) -> None:
    table = Table("late", service.url)
    for n in (1, 2):
        table.replace(rows(spark, 10, n), "k")
    late, options = Table("late@2", service.url), {"url": service.url, "table": "late@2", "key": "k"}
    started_s = time.monotonic()
    with pytest.raises(TableWriteError, match="10 rows failed with generation_sealed"):
        late.put(rows(spark, 10, 3), "k")
    with pytest.raises(Exception, match="generation_sealed"):
        rows(spark, 10, 3).write.format("tableside").options(**options).mode("append").save()
    assert time.monotonic() - started_s < 100, "a retry would take 120 s"
    assert (stored(service, "late"), stored(service, "late@2")) == (values(10, 2), values(10, 1))
    read = spark.read.format("tableside").options(**options).schema("k string, n int").load()
    for found in (read, late.enrich(read.select("k"), "k", "n int")):
        assert {row["k"]: {"n": row["n"]} for row in found.collect()} == values(10, 1)


def test_a_replacement_that_fails_leaves_the_old_records(spark: SparkSession, service: Service) -> None:
    table = Table("plain", service.url)
    table.put(rows(spark, 2, 7), "k")
    before, count = stored(service, "plain"), len(states(service, "plain"))
    broken = F.when(col("k") == "k99", F.raise_error(lit("broken")).cast("int")).otherwise(lit(1))
    stream = spark.readStream.format("rate").load().select(col("value").alias("k"))
    for frame, match in (
        (rows(spark, 100, 1).withColumn("n", broken), "broken"),
        (rows(spark, 100, 1).withColumn("k", F.when(col("k") != "k5", col("k"))), "null"),
        (rows(spark, 100, 1).where("n = 2"), "allow_empty"),
        (stream, "foreachBatch"),
    ):
        with pytest.raises(Exception, match=match):
            table.replace(frame, "k")
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


def test_collected_failures_that_are_temporary_leave_the_old_records(spark: SparkSession, service: Service) -> None:
    table = Table("busy", service.url, retries=Retries(total_s=1))
    table.put(rows(spark, 1, 1), "k")
    with pytest.raises(TableWriteError, match="throttled"):
        table.replace(rows(spark, 2, 2), "k", on_error="collect")
    assert stored(service, "busy") == values(1, 1)
    assert states(service, "busy") == ["current"]


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
    for options in ({"allow_empty": "true"}, {"truncate": "true"}):
        overwrite(rows(spark, 100, 3).where("n = 2"), service, "format", **options)
        assert stored(service, "format") == {}
    with pytest.raises(Exception, match="truncate"):
        overwrite(rows(spark, 1, 1), service, "without")


def two_generations(service: Service, table: str, count: int = ROWS) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Fill a table with records of `n` = 1, and load another generation with `n` = 2.

    Returns a function of a task that activates the other one before it returns the rows.
    """
    url = service.url
    with Client(url) as client:
        target = client.table(table)
        target.replace((key, {"n": 1}) for key in values(count, 1))
        number = target.create_generation().generation
        client.table(f"{table}@{number}").load((key, {"n": 2}) for key in values(count, 1))

    def activate(batches: Iterator[Any]) -> Iterator[Any]:
        with Client(url) as client:
            client.table(table).activate(number)
        yield from batches

    return activate


def reading(spark: SparkSession, service: Service, table: str) -> DataFrame:
    found = spark.read.format("tableside").options(url=service.url, table=table, key="k", splits="8")
    return found.schema("k string, n int").load()


def test_an_action_reads_one_generation_and_the_next_action_reads_the_current_one(
    spark: SparkSession, service: Service
) -> None:
    activate = two_generations(service, "read")
    keys = rows(spark, ROWS, 0).select("k").repartition(4).mapInArrow(activate, "k string")
    enriched = Table("read", service.url).enrich(keys, "k", "n int").groupBy("n").count()
    assert enriched.collect() == [(1, ROWS)]
    assert enriched.select("n", "count").collect() == [(2, ROWS)]
    activate = two_generations(service, "read")
    scanned = reading(spark, service, "read").mapInArrow(activate, "k string, n int").groupBy("n").count()
    assert scanned.collect() == [(1, ROWS)]
    assert reading(spark, service, "read").groupBy("n").count().collect() == [(2, ROWS)]


def test_a_micro_batch_looks_up_keys_in_the_generation_that_is_current_then(
    spark: SparkSession, service: Service, tmp_path: Path
) -> None:
    activate, found = two_generations(service, "read", 10), list[Any]()
    for at in range(3):
        rows(spark, 10, at).coalesce(1).write.mode("append").json(str(tmp_path / "in"))
    stream = spark.readStream.schema("k string").option("maxFilesPerTrigger", 1).json(str(tmp_path / "in"))

    def collect(batch: DataFrame, number: int) -> None:
        found.append(sorted(row["n"] for row in batch.collect()))
        if number == 0:
            list(activate(iter(())))

    enriched = Table("read", service.url).enrich(stream, "k", "n int", how="inner")
    writer = enriched.writeStream.foreachBatch(collect).option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    assert found == [[1] * 10, [2] * 10, [2] * 10]


def test_a_read_names_the_generation_that_was_removed_meanwhile(spark: SparkSession, service: Service) -> None:
    message = r"gone@\d+: generation_not_found .* reads one generation.*generations_kept"
    activate = two_generations(service, "gone")
    keys = rows(spark, ROWS, 0).select("k").mapInArrow(activate, "k string")
    with pytest.raises(Exception, match=message):
        Table("gone", service.url).enrich(keys, "k", "n int").collect()
    activate = two_generations(service, "gone")
    with pytest.raises(Exception, match=message):
        reading(spark, service, "gone").mapInArrow(activate, "k string, n int").collect()


@pytest.mark.daily
def test_a_killed_job_leaves_the_old_records_and_can_run_again(service: Service, tmp_path: Path) -> None:
    @contextmanager
    def job(wait_s: float) -> Iterator[Driver]:
        argument = json.dumps({"url": service.url, "table": "killed", "wait_s": wait_s})
        started = Driver(Path(replace_job.__file__), argument, tmp_path / "job.log")
        try:
            yield started
        finally:
            started.kill()

    with Client(service.url) as client:
        table = client.table("killed")
        table.load(values(10, 1).items())

        def is_half_loaded() -> bool:
            loading = [one.generation for one in table.generations() if one.state == "loading"]
            return bool(loading) and next(client.table(f"killed@{loading[-1]}").scan(limit=1), None) is not None

        def is_idle_removed() -> bool:
            return states(service, "killed") == ["current"]

        for _ in range(2):
            with job(3600) as killed:
                wait_until(is_half_loaded, killed)
            assert stored(service, "killed") == values(10, 1)
        wait_until(is_idle_removed)
        with job(0) as again:
            wait_until(lambda: again.ended is not None)
            assert again.ended == 0, again.log.read_text()[-4_000:]
        assert stored(service, "killed") == values(replace_job.ROWS, 2)
        assert states(service, "killed") == ["kept", "current"]


def wait_until(condition: Callable[[], bool], job: Driver | None = None) -> None:
    until = time.monotonic() + 180
    while not condition():
        assert time.monotonic() < until
        assert job is None or job.ended is None, job.log.read_text()[-4_000:]
        time.sleep(0.1)


# The mode `overwrite` of a table without generations, with the option `truncate`.

OLD_ROWS = 6_000
"""More records than a page of the deletes."""


def truncate(frame: DataFrame, service: Service, table: str, key: str = "k", **options: str) -> None:
    overwrite(frame, service, table, **{"key": key, "truncate": "true", **options})


def records(service: Service, table: str) -> dict[str, Any]:
    with Client(service.url) as client:
        rows = [row for page in client.arrow_table(table).scan() for row in page.to_pylist()]
    return {json.dumps([row["key"], row.get("partition")]): json.loads(row["value"]) for row in rows}


@pytest.mark.parametrize(("table", "key"), [("simple", "k"), ("pairs", "who,at"), ("shards", "k")])
def test_truncate_leaves_the_rows_of_the_query_and_no_others(
    spark: SparkSession, service: Service, table: str, key: str
) -> None:
    keys = [F.concat(lit("k"), "id").alias("k")] if key == "k" else [lit("k").alias("who"), col("id").alias("at")]
    parts = [(col("id") % 2).cast("int").alias("partition")] if table == "shards" else []
    rows = spark.range(OLD_ROWS).select(*keys, *parts, col("id").alias("n"))
    for count, frame in ((OLD_ROWS, rows), (30, rows.where("n % 200 = 7")), (1, rows.limit(1))):
        truncate(frame.repartition(3), service, table, key)
        assert len(records(service, table)) == count
    newest = rows.where("n in (0, 5999)").withColumn("n", -col("n"))
    truncate(newest, service, table, key)
    assert sorted(value["n"] for value in records(service, table).values()) == [-5999, 0]
    truncate(rows.limit(0), service, table, key)
    assert records(service, table) == {}


def test_a_query_or_a_write_that_fails_deletes_nothing(spark: SparkSession, service: Service) -> None:
    with Client(service.url) as client:
        client.table("kept").load([(f"k{at}", {"n": at}) for at in range(100)])
        client.table("kept").put("newer", {"n": 1}, order=7)
    before = records(service, "kept")
    rows = spark.range(100, 200).select(
        F.concat(lit("k"), "id").alias("k"), col("id").alias("n"), lit("text").alias("s")
    )
    broken = F.when(col("n") == 199, F.raise_error(lit("broken")).cast("double")).otherwise(lit(1.0))
    for frame, options, match in (
        (rows.withColumn("f", broken), {}, "broken"),
        (rows.withColumn("f", lit(float("nan"))), {}, "column f contains a NaN"),
        (rows.withColumn("k", lit("")), {}, "invalid_operation"),
        (rows, {"truncate": "false"}, "truncate"),
        (rows, {"sequence_by": "n"}, "sequence_by"),
    ):
        with pytest.raises(Exception, match=match):
            truncate(frame, service, "kept", **options)
        assert records(service, "kept").items() >= before.items()


def test_a_query_may_read_the_table_that_it_overwrites(spark: SparkSession, service: Service) -> None:
    with Client(service.url) as client:
        client.table("simple").load([(f"k{at:04}", {"n": at}) for at in range(OLD_ROWS)])
    before = records(service, "simple")
    same = spark.read.format("tableside").options(url=service.url, table="simple").load()
    truncate(same.where("key < 'k0100'"), service, "simple", "key")
    assert records(service, "simple") == {key: value for key, value in before.items() if key < '["k0100'}
