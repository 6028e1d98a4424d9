"""The measured query: a count, a sum and a last value for each user. Its output is discarded."""

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

SCHEMA = "user string, amount long, batch long, payload string"

Progress = Mapping[str, Any]


def start(spark: SparkSession, folder: str, checkpoint: str, *, payload: bool) -> StreamingQuery:
    """Start the query on a folder with one file per micro-batch. With `payload`, the state has the last payload too."""
    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(folder)
    kept = [f.count("*"), f.sum("amount"), f.last("batch"), *([f.max_by("payload", "batch")] if payload else [])]
    state = rows.groupBy("user").agg(*kept)
    writer = state.writeStream.outputMode("update").option("checkpointLocation", checkpoint)
    return writer.format("noop").start()


def finish(query: StreamingQuery) -> list[Progress]:
    """Wait until all files have been read, and return Spark's progress report of each micro-batch."""
    query.processAllAvailable()
    found = [json.loads(progress.json) for progress in query.recentProgress]
    return [progress for progress in found if progress["numInputRows"]]


def totals(spark: SparkSession, checkpoint: str) -> dict[str, int]:
    """Read the whole state after the last micro-batch, and return its totals."""
    state = spark.read.format("statestore").load(checkpoint)
    counted, summed, last = (f.sum(f"value.{name}") for name in _columns(state.schema["value"].dataType))
    [row] = state.select(f.count("*"), counted, summed, last).collect()
    return dict(zip(("keys", "rows", "amounts", "last"), row, strict=True))


def _columns(value: Any) -> list[str]:
    """Return the names of the count, the sum and the last value, which are the first columns."""
    return [field.name for field in value.fields][:3]
