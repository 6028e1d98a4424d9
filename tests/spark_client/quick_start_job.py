"""A job that uses the parts of Spark that tests use, so that its JVM has loaded their classes when it ends."""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

COLUMNS = ("timestamp_seconds(id) at", "id % 7 k", "cast(id as string) text", "to_json(struct(id)) json")


def run(options: str, folder: Path) -> None:
    """Run batch and streaming queries in one JVM with these options, and end the JVM."""
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": options,
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
    }
    builder = SparkSession.builder.master("local[2]")
    for name, setting in settings.items():
        builder = builder.config(name, setting)
    spark = builder.getOrCreate()
    batch(spark, str(folder / "rows"))
    streams(spark, folder)
    end(spark)


def batch(spark: SparkSession, rows: str) -> None:
    """Write rows, and read them with an aggregation, a join and a Python function."""
    spark.range(100).selectExpr(*COLUMNS).write.json(rows)
    read = spark.read.schema("at timestamp, k long, text string, json string").json(rows)
    counts = read.groupBy("k").count()
    decoded = ("from_json(json, 'id long').id as id", "decode(cast(text as binary), 'utf-8') decoded")
    joined = read.join(counts, "k", "left").selectExpr("*", *decoded)
    joined.orderBy("text").collect()
    joined.mapInArrow(same, joined.schema).toArrow()


def streams(spark: SparkSession, folder: Path) -> None:
    """Run two queries with state over the rows."""
    read = spark.readStream.schema("at timestamp, k long, text string").json(str(folder / "rows"))
    events = read.withWatermark("at", "10 seconds")
    windows = events.groupBy("k").count()
    pairs = events.alias("a").join(events.alias("b"), "at")
    for name, frame, mode in (("windows", windows, "update"), ("pairs", pairs.select("a.k"), "append")):
        writer = frame.writeStream.outputMode(mode).foreachBatch(collected).trigger(availableNow=True)
        writer.option("checkpointLocation", str(folder / name)).start().awaitTermination()


def same(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return the batches unchanged."""
    yield from batches


def collected(batch: DataFrame, _: int) -> None:
    """Collect a micro-batch."""
    batch.collect()


def end(spark: SparkSession) -> None:
    """Stop Spark, and wait until its JVM has written the archive."""
    spark.stop()
    gateway = SparkContext._gateway
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


if __name__ == "__main__":
    run(sys.argv[1], Path(sys.argv[2]))
