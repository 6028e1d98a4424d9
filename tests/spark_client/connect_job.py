"""The program of `test_spark_connect`, in a separate process: a Connect session cannot coexist with a classic one."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import (
    DataFrame,
    Observation,
    SparkSession,
    functions as F,  # noqa: N812 - its name everywhere
)
from pyspark.sql.functions import col, lit

from tableside_spark import BROADCAST, DEFAULT, StreamPartitioner, Table, TableWriteError, multicast, progress


def main(url: str, directory: Path, remote: str) -> None:
    """Run every feature that works through Spark Connect, in one session of a server."""
    spark = SparkSession.builder.remote(remote).getOrCreate()
    verbs(spark, url, directory / "verbs")
    print("every verb works through Connect", flush=True)
    copies(spark)
    print("multicast works through Connect", flush=True)
    spark.stop()


def verbs(spark: SparkSession, url: str, directory: Path) -> None:
    """Use every verb, the format and a stream."""
    table = Table("connect", url, in_flight_max=1)
    rows = spark.range(1_000).select((col("id") % 50).cast("string").alias("k"), col("id").alias("n"))
    for fold in (True, False):
        update = {"$inc": {"n": col("n"), "count": lit(1)}, "$push": {"all": col("n")}, "$set": {"last": col("n")}}
        summary = table.update(rows, "k", update, default={"n": 0}, order_by="n", fold=fold)
        assert (summary.operations, summary.sent, summary.applied) == (50, 1_000, 1_000), summary
    found = table.join(rows.select("k").distinct(), "k", "n long, count long, all array<long>, last long", "inner")
    totals = found.agg(F.sum("n"), F.sum("count"), F.sum(F.size("all")), F.max("last")).collect()[0]
    assert tuple(totals) == (999_000, 2_000, 2_000, 999), totals

    replaced = Table("connect_replaced", url)
    assert replaced.replace(rows.where(col("n") < 7), "k").applied == 7
    assert replaced.join(rows.select("k").distinct(), "k", "n long", "inner").count() == 7

    ordered = Table("connect_ordered", url)
    assert ordered.put(rows, "k", sequence_by="n").applied == 1_000
    assert ordered.put(rows, "k", sequence_by=col("n") - 1_000).superseded == 1_000
    summary = ordered.update(rows, "k", set=["n"], nulls="omit", delete_when=col("n") == 999, sequence_by="n")
    assert (summary.operations, summary.applied) == (50, 1_000), summary

    expiring, until = Table("connect_expiring", url), F.timestamp_seconds(F.unix_timestamp() + 1_000 * col("n") - 2_000)
    columns: list[dict[str, Any]] = [{"ttl_s": F.when(col("n") > 2, 1_000.0).otherwise(0)}, {"expires_at": until}]
    for given in columns:
        done = expiring.put(rows.limit(10), "k", on_error="collect", **given)
        assert (done.applied, done.failed) == ((7, 3) if "ttl_s" in given else (10, 0)), done
        assert expiring.join(rows.limit(10), "k", how="left_semi").count() == 7

    bad = rows.limit(10).withColumn("f", F.when(col("n") == 3, lit(float("nan"))).otherwise(lit(1.0)))
    collected = table.put(bad, "k", on_error="collect")
    assert (collected.applied, collected.failed) == (9, 1), collected
    assert collected.failures is not None
    assert [row.k for row in collected.failures.collect()] == ["3"]
    with pytest.raises(TableWriteError, match="NaN"):
        table.put(bad, "k")

    added = {"$set": {"seen": F.transform(F.array("n"), lambda n: n + 1)}}
    for finished_before in (False, True):
        run = table.update(rows.limit(10), "k", added, token="run", on_error="collect")
        assert run.failures is not None
        assert (run.finished_before, run.failures.count()) == (finished_before, 0), run

    with pytest.raises(PySparkException) as misfit:
        table.enrich(rows.where(col("n") == 4).select("k"), "k", "n boolean").collect()
    expected = 'table connect: column n is a JSON number for key "4", which does not fit boolean; '
    assert expected in str(misfit.value).splitlines()[0], misfit.value

    writer = rows.write.format("tableside").option("url", url).option("table", "connect_source").option("key", "k")
    writer.mode("append").save()
    assert spark.read.format("tableside").option("url", url).option("table", "connect_source").load().count() == 50

    rows.select("k").write.parquet(str(directory / "in"))
    joined = table.join(spark.readStream.schema("k string").parquet(str(directory / "in")), "k", how="left_semi")
    query = joined.writeStream.format("parquet").option("checkpointLocation", str(directory / "checkpoint"))
    query.trigger(availableNow=True).start(str(directory / "out")).awaitTermination()
    assert spark.read.parquet(str(directory / "out")).count() == 1_000

    streams(spark, url, directory)

    assert table.delete(rows, "k").applied == 1_000
    assert table.join(rows, "k", how="left_semi").count() == 0


def streams(spark: SparkSession, url: str, directory: Path) -> None:
    """A stream counts once although its last micro-batch runs twice. Inside `foreachBatch` a token is required."""
    counts = Table("connect_stream", url)
    events = spark.readStream.schema("k string, n long").parquet(str(directory / "in"))
    events = events.withColumn("n", lit(1))
    counting = counts.update(events, "k", {"$inc": {"n": events["n"]}}, default={"n": 0})
    for first in (True, False):
        query = counting.start(str(directory / "counting"), availableNow=True)
        assert query.awaitTermination(120)
        [batch] = progress(query)
        assert (batch.applied, batch.replayed) == ((1_000, 0) if first else (0, 1_000)), batch
        for file in (directory / "counting" / "commits").glob("*0*"):
            file.unlink()
    found = counts.join(spark.range(50).select(col("id").cast("string").alias("k")), "k", "n long", "inner")
    assert found.agg(F.sum("n")).collect()[0][0] == 1_000

    def without_a_token(frame: DataFrame, number: int) -> None:
        Table("connect_stream", url).update(frame, "k", {"$inc": {"n": lit(1)}})

    def with_a_token(frame: DataFrame, number: int) -> None:
        Table("connect_stream", url).update(frame, "k", {"$inc": {"n": lit(1)}}, token=("connect", number))

    def ordered(frame: DataFrame, number: int) -> None:
        for sequence in (2, 1):
            summary = Table("connect_late", url).put(frame.withColumn("at", lit(sequence)), "k", sequence_by="at")
            assert summary.superseded == (1_000 if sequence == 1 else 0), summary

    def run(name: str, write: Callable[[DataFrame, int], None]) -> None:
        writer = events.writeStream.foreachBatch(write).option("checkpointLocation", str(directory / name))
        assert writer.trigger(availableNow=True).start().awaitTermination(120)

    with pytest.raises(StreamingQueryException, match="does not provide the query's id in foreachBatch"):
        run("without", without_a_token)
    run("ordered", ordered)
    run("with", with_a_token)
    assert found.agg(F.sum("n")).collect()[0][0] == 2_000


class Thirds(StreamPartitioner):
    """Sends a third of the rows to every partition, drops a third, and leaves a third to Kafka."""

    def partitions(self, topic: str, key: Any, value: Any, num_partitions: int) -> Any:
        return (BROADCAST, [], DEFAULT)[int(value) % 3]


def copies(spark: SparkSession) -> None:
    """Multicast with a partitioner and with a column."""
    rows = spark.range(300).select(lit("k").alias("key"), col("id").cast("string").alias("value"), "id")
    in_columns = F.expr("case id % 3 when 0 then array(-1) when 1 then array() else array(null) end")
    expected = {0: 100, 1: 100, None: 100}
    counts = {"rows": 300, "dropped": 100, "records": 300}
    for partitions in (Thirds(), in_columns):
        observed = Observation()
        copied = multicast(rows, partitions, num_partitions=2, topic="t", observed=observed)
        assert {row.partition: row["count"] for row in copied.groupBy("partition").count().collect()} == expected
        assert observed.get == counts, observed.get
    for wrong in (lambda *_: [2], F.array(lit(2))):
        with pytest.raises(Exception, match="partitions are 0 to 1, or -1 alone for all of them; a record is for 2"):
            multicast(rows, wrong, num_partitions=2, topic="t").collect()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
