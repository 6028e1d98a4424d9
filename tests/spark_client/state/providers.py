"""The state store providers that queries run on, as settings of a session."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from py4j.java_gateway import JavaGateway  # type: ignore[import-untyped] # it has no types
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from scripts.state_jar import ensure_jar
from servers.jdk import ensure_javac
from spark_client.kafka_sessions import end_jvm
from spark_client.sessions import session
from spark_client.state.suite import BOUNDED, COPIED, OURS, SPARKS

Settings = Mapping[str, str]

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
RETAINED = "spark.sql.streaming.minBatchesToRetain"
INTERVAL = "spark.sql.streaming.stateStore.maintenanceInterval"
FILE_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"

HDFS: Settings = {PROVIDER: f"{SPARKS}.HDFSBackedStateStoreProvider", FORMAT: "1"}
ROCKSDB: Settings = {PROVIDER: f"{SPARKS}.RocksDBStateStoreProvider", FORMAT: "2"}
FETCHING: Settings = {f"tableside.state.{name}": setting for name, setting in BOUNDED.items()}
"""Ours, with so few values in memory that most of them are fetched."""

COPYING: Settings = {f"tableside.state.{name}": setting for name, setting in COPIED.items()}
"""Likewise, with copies of what was read and written on the local disk."""

TIDYING: Settings = {"tableside.state.deltas_max": "3", RETAINED: "2", INTERVAL: "200ms"}
"""Ours, with snapshots in commits, and old versions removed while queries run."""

SESSION: Settings = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.codegen.wholeStage": "false",  # for so few rows, compiling takes longer than it saves
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # what Hadoop does by default on a local disk starts two processes for each file: here it is one
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.sql.streaming.checkpointFileManagerClass": FILE_MANAGER,
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC",
}

_with_jar: JavaGateway | None = None
"""The way to the JVM of this process, if it was started with the jar."""


def ours(url: str, table: str, checkpoint_format: int, *more: Settings) -> Settings:
    """The settings of our provider, in a table of a service."""
    settings = {PROVIDER: OURS, FORMAT: str(checkpoint_format)}
    settings |= {"tableside.state.url": url, "tableside.state.table": table}
    for each in more:
        settings |= each
    return settings


@contextmanager
def state_session(master: str, more: Settings | None = None) -> Iterator[SparkSession]:
    """A session that can use any of the providers, as soon as its configuration says so.

    Its JVM is started with the jar, as a program's is. The next session of this kind uses the same JVM, which by then
    has loaded and compiled most of Spark. A JVM that other sessions have left in this process is ended.
    """
    global _with_jar
    settings = {**SESSION, "spark.jars": str(ensure_jar(ensure_javac()))}
    if SparkContext._gateway is None or SparkContext._gateway is not _with_jar:
        end_jvm()
        # `more` is for this session alone: with what a JVM is started, all its sessions have
        SparkContext._ensure_initialized(conf=SparkConf(loadDefaults=False).setAll(list(settings.items())))
        _with_jar = SparkContext._gateway
    with session(master, {**settings, **(more or {})}) as spark:
        yield spark


@contextmanager
def configured(spark: SparkSession, settings: Settings) -> Iterator[None]:
    """Settings of a session, for as long as it is entered."""
    for name, setting in settings.items():
        spark.conf.set(name, setting)
    try:
        yield
    finally:
        for name in settings:
            spark.conf.unset(name)


def unload(spark: SparkSession) -> None:
    """Have the JVM close every state store that it holds, so that the next micro-batch reads its state back."""
    assert spark._jvm is not None
    spark._jvm.org.apache.spark.sql.execution.streaming.state.StateStore.stop()


def query_id(checkpoint: Path) -> str:
    """The identity that Spark gave a query when it first started, by which its state is found."""
    return str(json.loads((checkpoint / "metadata").read_text())["id"])
