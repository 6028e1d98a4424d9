"""The measured query, a count, a sum and a last value for each user, and direct reads of its state.

The query's output is discarded. The time to load a partition is that of a provider's last version.
"""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

from pyspark.sql import SparkSession, functions as f
from pyspark.sql.streaming.query import StreamingQuery

from .java import jvm
from .task import PARTITIONS
from .ways import SPARKS

SCHEMA = "user string, amount long, batch long, payload string"

STORE = "default"

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


def loads_s(spark: SparkSession, checkpoint: str) -> list[float]:
    """Return the seconds by partition, for new providers without cached state.

    The session's existing providers are closed first.
    """
    _package(spark).StateStore.stop()
    batch, uids = _last(Path(checkpoint) / "commits")
    return [_seconds(spark, checkpoint, partition, batch + 1, uids[partition]) for partition in range(PARTITIONS)]


def _seconds(spark: SparkSession, checkpoint: str, partition: int, version: int, uid: str | None) -> float:
    provider = _provider(spark, checkpoint, partition)
    try:
        began = time.perf_counter()
        store = provider.getStore(version, jvm(spark).scala.Option.apply(uid), False, False)
        took = time.perf_counter() - began
        store.abort()
    finally:
        provider.close()
    return took


def _provider(spark: SparkSession, checkpoint: str, partition: int) -> Any:
    java, state, session = jvm(spark), _package(spark), _session(spark)
    schema = spark.read.format("statestore").load(checkpoint).schema
    key, value = (
        java.org.apache.spark.sql.types.DataType.fromJson(schema[name].dataType.json()) for name in ("key", "value")
    )
    place = state.StateStoreId(str(Path(checkpoint).absolute().as_uri()) + "/state", 0, partition, STORE)
    return _object(state, "StateStoreProvider").createAndInit(
        state.StateStoreProviderId(place, java.java.util.UUID.fromString(str(uuid4()))),
        key,
        value,
        state.NoPrefixKeyStateEncoderSpec(key),
        False,
        state.StateStoreConf.apply(session.conf()),
        session.newHadoopConf(),
        False,
        java.scala.Option.empty(),
    )


def _last(commits: Path) -> tuple[int, list[str | None]]:
    """Return the last micro-batch and its checkpoint ids by partition, which format v1 does not have."""
    last = max(commits.glob("[0-9]*"), key=lambda file: int(file.name))
    document = json.loads(last.read_text().splitlines()[1])
    found = document.get("stateUniqueIds") or {}
    uids = [each[0] for each in found["0"]] if "0" in found else [None] * PARTITIONS
    return int(last.name), uids


def _session(spark: SparkSession) -> Any:
    return spark._jsparkSession.sessionState()  # noqa: SLF001 - PySpark has no public access to the session state


def _package(spark: SparkSession) -> Any:
    found = jvm(spark)
    for name in SPARKS.split("."):
        found = getattr(found, name)
    return found


def _object(package: Any, name: str) -> Any:
    return getattr(getattr(package, f"{name}$"), "MODULE$")
