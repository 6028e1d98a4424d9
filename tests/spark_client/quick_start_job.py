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
    builder = SparkSession.builder.master("local[2]").config("spark.driver.host", "127.0.0.1")
    builder = builder.config("spark.driver.extraJavaOptions", options).config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    rows = str(folder / "rows")
    spark.range(100).selectExpr(*COLUMNS).write.json(rows)
    read = spark.read.schema("at timestamp, k long, text string, json string").json(rows)
    joined = read.join(read.groupBy("k").count(), "k", "left").selectExpr("*", "from_json(json, 'id long').id as id")
    joined.orderBy("text").collect()
    joined.mapInArrow(same, joined.schema).toArrow()
    events = spark.readStream.schema("at timestamp, k long").json(rows).withWatermark("at", "10 seconds")
    pairs = events.alias("a").join(events.alias("b"), "at").select("a.k")
    for name, frame, mode in (("counts", events.groupBy("k").count(), "update"), ("pairs", pairs, "append")):
        writer = frame.writeStream.outputMode(mode).foreachBatch(collected).trigger(availableNow=True)
        writer.option("checkpointLocation", str(folder / name)).start().awaitTermination()
    spark.stop()
    gateway = SparkContext._gateway  # The JVM writes the archive when it ends.
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


def same(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return the batches unchanged."""
    yield from batches


def collected(batch: DataFrame, _: int) -> None:
    """Collect a micro-batch."""
    batch.collect()


if __name__ == "__main__":
    run(sys.argv[1], Path(sys.argv[2]))
