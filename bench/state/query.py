"""The query whose state is measured: what is counted, summed and seen last of each user, written nowhere."""

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

SCHEMA = "user string, amount long, batch long, payload string"

Progress = Mapping[str, Any]


def start(spark: SparkSession, folder: str, checkpoint: str, *, payload: bool) -> StreamingQuery:
    """Start the query on files in a folder, one for each micro-batch; the last payload is kept too if there is one."""
    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(folder)
    kept = [f.count("*"), f.sum("amount"), f.last("batch"), *([f.max_by("payload", "batch")] if payload else [])]
    state = rows.groupBy("user").agg(*kept)
    writer = state.writeStream.outputMode("update").option("checkpointLocation", checkpoint)
    return writer.format("noop").start()


def finish(query: StreamingQuery) -> list[Progress]:
    """Wait until every file has been read, and return what Spark says of each micro-batch."""
    query.processAllAvailable()
    found = [json.loads(progress.json) for progress in query.recentProgress]
    return [progress for progress in found if progress["numInputRows"]]


def totals(spark: SparkSession, checkpoint: str) -> dict[str, int]:
    """Read all of the state, as it is after the last micro-batch, and return what it adds up to."""
    state = spark.read.format("statestore").load(checkpoint)
    counted, summed, last = (f.sum(f"value.{name}") for name in _columns(state.schema["value"].dataType))
    [row] = state.select(f.count("*"), counted, summed, last).collect()
    return dict(zip(("keys", "rows", "amounts", "last"), row, strict=True))


def _columns(value: Any) -> list[str]:
    """Return the names of the count, the sum and the last one, after which comes what there is beside."""
    return [field.name for field in value.fields][:3]
