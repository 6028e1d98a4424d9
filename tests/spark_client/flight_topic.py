"""A topic of flight events, and what they come to for each aircraft: by Spark's own aggregation, and in the table."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
from demo import flights
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere
from pyspark.sql.functions import col

from kafka_topics import create_topic
from spark_client.exactly_once_job import EVENT
from tableside_spark import TableClient

PARTITIONS = 10
NO_AIRCRAFT = "none"
"""The key of flights that were cancelled before an aircraft was named."""

Aircraft = dict[str, dict[str, Any]]
"""The figures of each aircraft, by its tail number."""


def fill(spark: SparkSession, address: str, events: int, folder: Path) -> str:
    """Make a topic of so many events: the flights of a year, then the first again under other numbers."""
    folder.mkdir(parents=True, exist_ok=True)
    flights.prepare(folder)
    year = pyarrow.parquet.read_table(folder / "flights.parquet")
    again = year.take(pa.array((number % len(year) for number in range(events)), pa.int64()))
    rows = spark.createDataFrame(again.append_column("id", pa.array(range(events), pa.int64())))
    event = rows.select(
        "id",
        F.coalesce("tailnum", F.lit(NO_AIRCRAFT)).alias("tailnum"),
        "distance",
        F.coalesce("air_time", F.lit(0)).alias("air_time"),
        "dest",
        F.date_format("time_hour", "yyyy-MM-dd'T'HH:mm").alias("at"),
    )
    topic = create_topic(address, PARTITIONS)
    records = event.select(
        (col("id") % PARTITIONS).cast("int").alias("partition"), F.to_json(F.struct("*")).alias("value")
    )
    records.write.format("kafka").option("kafka.bootstrap.servers", address).option("topic", topic).save()
    return topic


def counted_by_spark(spark: SparkSession, address: str, topic: str) -> Aircraft:
    """What the whole topic comes to."""
    source = spark.read.format("kafka").option("kafka.bootstrap.servers", address).option("subscribe", topic).load()
    rows = source.select(F.from_json(col("value").cast("string"), EVENT).alias("event")).select("event.*")
    figures = rows.groupBy("tailnum").agg(
        F.count("*").alias("flights"),
        F.sum("distance").alias("miles"),
        F.max("at").alias("latest"),
        F.max("air_time").alias("longest_min"),
        F.collect_set("dest").alias("destinations"),
    )
    found = [row.asDict() for row in figures.collect()]
    return _sorted({row.pop("tailnum"): row for row in found})


def counted_in_table(url: str, table: str) -> Aircraft:
    """What the records of a table say."""
    with TableClient(url) as client:
        rows = [row for page in client.scan(table) for row in page.to_pylist()]
    return _sorted({row["key"]: json.loads(row["value"]) for row in rows})


def _sorted(aircraft: Aircraft) -> Aircraft:
    """The same, with the destinations, which are a set, in order."""
    return {key: {**figures, "destinations": sorted(figures["destinations"])} for key, figures in aircraft.items()}
