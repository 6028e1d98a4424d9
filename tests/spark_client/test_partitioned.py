"""Frames and streams written to, and joined with, a partitioned table: each row goes to its partitions."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyspark.sql import (
    DataFrame,
    SparkSession,
    functions as F,  # noqa: N812 - its name everywhere
)
from pyspark.sql.functions import col, lit

from documentation.blocks import blocks
from spark_client.sessions import jvm
from support.running import Service, running
from tableside_client import Client
from tableside_spark import (
    BROADCAST,
    DEFAULT,
    DROP,
    StreamPartitioner,
    Table,
    default_partition,
    progress,
)

pytestmark = jvm("spark")

PARTITIONS, ROWS = 4, 400


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    directory = tmp_path_factory.mktemp("partitioned")
    tables = ("routed", "copied", "counted", "looked_up", "streamed", "plain_default", "dead", "ordered")
    names = [f"s{at}" for at in range(PARTITIONS)]
    stores: dict[str, Any] = {name: {"kind": "rocksdb", "path": str(directory / name)} for name in names}
    stores["shards"] = {"kind": "partitioned", "partitions": names}
    stores["two"] = {"kind": "partitioned", "partitions": names[:2]}
    config = {
        "stores": stores,
        "tables": {table: {"store": "shards"} for table in tables}
        | {"composite": {"store": "shards", "key": {"who": "string", "at": "integer"}}, "single": {"store": "s0"}}
        | {"alerts_by_region": {"store": "two"}},
    }
    path = directory / "tableside.yaml"
    path.write_text(json.dumps(config))
    with running(directory, path) as service:
        yield service


def stored(service: Service, table: str) -> dict[tuple[int, str], Any]:
    with Client(service.url) as client:
        rows = [record for page in client.arrow_table(table).scan() for record in page.to_pylist()]
    return {(row["partition"], row["key"]): json.loads(row["value"]) for row in rows}


def placed(service: Service, table: str) -> Counter[tuple[int, str]]:
    """Return the partition and the key of each record."""
    return Counter(stored(service, table).keys())


def frame_of(spark: SparkSession, rows: int = ROWS) -> DataFrame:
    return spark.range(rows).select(F.concat(lit("k"), "id").alias("k"), col("id").alias("n"))


def mixed() -> StreamPartitioner:
    """Return a partitioner of a local class, which Spark ships by value, as for classes that a program defines."""

    class Mixed(StreamPartitioner):
        """Chooses by number: even partitions, all, none, the default, or the last one twice."""

        def partitions(self, topic: str, key: Any, value: Any, num_partitions: int) -> Any:
            assert (topic, key) == ("routed", f"k{value['n']}")
            choices = [range(0, num_partitions, 2), BROADCAST, DROP, DEFAULT, [num_partitions - 1] * 2]
            return choices[value["n"] % len(choices)]

    return Mixed()


def expected(rows: int = ROWS) -> Counter[tuple[int, str]]:
    found: Counter[tuple[int, str]] = Counter()
    for n in range(rows):
        key = f"k{n}"
        default = default_partition(key, PARTITIONS)
        places = [range(0, PARTITIONS, 2), range(PARTITIONS), [], [default], [PARTITIONS - 1]]
        found.update((place, key) for place in places[n % 5])
    return found


def by_column() -> Any:
    which = col("n") % 5
    return (
        F.when(which == 0, F.array(lit(0), lit(2)))
        .when(which == 1, F.lit(None).cast("array<int>"))
        .when(which == 2, F.array().cast("array<int>"))
        .when(which == 3, F.array(lit(None).cast("int")))
        .otherwise(F.array(lit(PARTITIONS - 1), lit(PARTITIONS - 1)))
    )


@pytest.mark.parametrize("way", ["routed", "copied"])
def test_every_row_is_in_the_partitions_that_it_is_for(spark: SparkSession, service: Service, way: str) -> None:
    partitions = mixed() if way == "routed" else by_column()
    summary = Table(way, service.url).put(frame_of(spark), "k", partitions=partitions)
    assert placed(service, way) == expected()
    copies = expected().total()
    assert (summary.applied, summary.dropped, summary.failed, summary.unsent) == (copies, ROWS // 5, 0, 0)
    assert f'tableside_dropped_records_total{{table="{way}"}} {ROWS // 5}.0' in httpx.get(f"{service.url}/metrics").text


def test_updates_of_one_key_for_overlapping_partitions_count_once_in_each(
    spark: SparkSession, service: Service
) -> None:
    table = Table("counted", service.url)
    rows = spark.range(ROWS).select(lit("k").alias("k"), col("id").alias("n"))
    lists = F.when(col("n") % 2 == 0, F.array(lit(0), lit(1))).otherwise(F.array(lit(1), lit(2)))
    for replayed in (False, True):
        summary = table.update(rows, "k", {"$inc": {"n": lit(1)}}, default={"n": 0}, partitions=lists, token=("job", 1))
        assert summary.operations == 3
        assert (summary.applied, summary.replayed) == ((0, 2 * ROWS) if replayed else (2 * ROWS, 0))
    found = {place: record["n"] for (place, _), record in stored(service, "counted").items()}
    assert found == {0: ROWS // 2, 1: ROWS, 2: ROWS // 2}
    gone = table.delete(rows.limit(1), "k", partitions=F.array(lit(-1)))
    assert (gone.operations, gone.applied) == (PARTITIONS, PARTITIONS)
    assert placed(service, "counted") == Counter()


def test_a_lookup_requires_one_partition_and_names_other_rows(spark: SparkSession, service: Service) -> None:
    table = Table("looked_up", service.url)
    rows = frame_of(spark, 50)
    for place in range(PARTITIONS):
        table.put(rows.withColumn("n", lit(place)), "k", partitions=F.array(lit(place)))
    asked = rows.crossJoin(spark.range(PARTITIONS).withColumnRenamed("id", "place"))
    found = table.join(asked.drop("n"), "k", "n int", partitions=F.array(col("place").cast("int")))
    assert found.columns == ["k", "place", "n"]
    assert found.where("n = place").count() == 50 * PARTITIONS
    for partitions in (lambda *_: DEFAULT, None):
        default = table.join(rows.drop("n"), "k", "n int", partitions=partitions).collect()
        assert {row.k: row.n for row in default} == {f"k{n}": default_partition(f"k{n}", PARTITIONS) for n in range(50)}
    for lists, size in ((F.array(lit(0), lit(1)), 2), (F.array().cast("array<int>"), 0), (F.array(lit(-1)), 4)):
        wrong = F.when(col("k") == "k7", lists).otherwise(F.array(lit(0)))
        with pytest.raises(Exception, match=rf'the row with the key \{{"k":"k7"\}} is for {size}'):
            table.join(rows.drop("n"), "k", "n int", partitions=wrong).collect()


def test_without_partitions_rows_go_to_the_default_partition(spark: SparkSession, service: Service) -> None:
    Table("plain_default", service.url).put(frame_of(spark), "k")
    assert placed(service, "plain_default") == Counter(
        (default_partition(f"k{n}", PARTITIONS), f"k{n}") for n in range(ROWS)
    )
    rows = frame_of(spark, 100).select(col("n").alias("at"), (col("n") % 7).cast("string").alias("who"))
    composite = Table("composite", service.url)
    for partitions in (None, lambda *_: DEFAULT):
        assert composite.put(rows, ["at", "who"], partitions=partitions).applied == 100
    with Client(service.url) as client:
        records = [(record.key, record.partition) for record in client.table("composite").scan()]
    assert len(records) == 100
    assert all(partition == default_partition(key[0], PARTITIONS) for key, partition in records)


def test_the_program_of_the_page(spark: SparkSession, service: Service) -> None:
    partitioner = next(block.text for block in blocks("docs/multicast.md") if block.language == "python")
    [program] = [block.text for block in blocks("docs/partitioned-tables.md") if block.language == "python"]
    regions = [("EU", "storm"), ("US", "fog"), ("all", "strike"), ("Asia", "heat")]
    alerts = spark.createDataFrame(regions, "key string, value string")
    names: dict[str, Any] = {"__name__": "__main__", "alerts": alerts, "regions": alerts.select("key")}
    exec(partitioner.partition("copies = ")[0], names)
    exec(program.replace("http://127.0.0.1:8080", service.url), names)
    assert placed(service, "alerts_by_region") == Counter(
        [(0, "EU"), (1, "EU"), (1, "US"), (0, "all"), (1, "all"), (default_partition("Asia", 2), "Asia")]
    )
    assert {row.key for row in names["latest"].where("value is not null").collect()} >= {"EU", "US", "all"}


def test_invalid_routes_are_rejected(spark: SparkSession, service: Service) -> None:
    rows = frame_of(spark, 3)
    with pytest.raises(ValueError, match="table single is not partitioned"):
        Table("single", service.url).put(rows, "k", partitions=F.array(lit(0)))
    with pytest.raises(TypeError, match="a column of partitions is"):
        Table("dead", service.url).put(rows, "k", partitions=col("n"))
    with pytest.raises(Exception, match=r"table dead: partitions are 0 to 3, .* a record is for 4"):
        Table("dead", service.url).put(rows, "k", partitions=F.array(lit(4)))


def test_a_failure_names_its_partition(spark: SparkSession, service: Service) -> None:
    table = Table("dead", service.url)
    table.put(frame_of(spark, 1), "k", partitions=F.array(lit(1), lit(3)))
    summary = table.update(
        frame_of(spark, 1), "k", {"$inc": {"n": lit(1)}}, partitions=F.array(lit(-1)), on_error="collect"
    )
    assert (summary.applied, summary.failed) == (2, 2)
    assert summary.failures is not None
    assert {(row.k, row.partition, row.code) for row in summary.failures.collect()} == {
        ("k0", 0, "record_not_found"), ("k0", 2, "record_not_found"),
    }  # fmt: skip


def test_a_stream_accounts_for_every_row_in_every_partition(
    spark: SparkSession, service: Service, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    for file in range(2):
        rows = [{"k": f"k{n}", "n": n} for n in range(ROWS)]
        (tmp_path / "in" / f"{file}.json").write_text("\n".join(map(json.dumps, rows)))
    stream = spark.readStream.schema("k string, n long").option("maxFilesPerTrigger", 1).json(str(tmp_path / "in"))
    table = Table("streamed", service.url)
    update = {"$inc": {"n": lit(1)}}
    writing = table.update(stream, "k", update, default={"n": 0}, partitions=by_column())
    for _ in range(2):
        query = writing.start(str(tmp_path / "checkpoint"), availableNow=True)
        assert query.awaitTermination(120)
        for commit in (tmp_path / "checkpoint" / "commits").glob("*1*"):
            commit.unlink()
    assert stored(service, "streamed") == {place: {"n": 2} for place in expected()}
    [again] = progress(query)
    assert (again.applied, again.replayed, again.dropped) == (0, expected().total(), ROWS // 5)


def test_each_partition_orders_its_own_copies(spark: SparkSession, service: Service) -> None:
    table, copies = Table("ordered", service.url), sum(expected().values())
    newer, older = (frame_of(spark).withColumn("at", lit(sequence)) for sequence in (2, 1))
    assert table.put(newer, "k", partitions=by_column(), sequence_by="at").applied == copies
    everywhere = F.lit(None).cast("array<int>")
    summary = table.put(older, "k", partitions=everywhere, sequence_by="at")
    assert (summary.applied, summary.superseded) == (ROWS * PARTITIONS - copies, copies)
    found = Counter((place, key) for (place, key), value in stored(service, "ordered").items() if value["at"] == 2)
    assert found == expected()
    summary = table.update(older, "k", set=["at"], nulls="omit", partitions=by_column(), sequence_by="at")
    assert (summary.superseded, summary.dropped) == (copies, ROWS // 5)
    assert table.delete(newer, "k", partitions=everywhere, sequence_by="at").applied == ROWS * PARTITIONS
    assert stored(service, "ordered") == {}
