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
from spark_client.quick_start import QUICK_START
from spark_client.sessions import FILE_MANAGER, end_jvm, session, set_environment
from spark_client.state.suite import BOUNDED, COPIED, OURS, SPARKS

Settings = Mapping[str, str]

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
RETAINED = "spark.sql.streaming.minBatchesToRetain"
INTERVAL = "spark.sql.streaming.stateStore.maintenanceInterval"

HDFS: Settings = {PROVIDER: f"{SPARKS}.HDFSBackedStateStoreProvider", FORMAT: "1"}
ROCKSDB: Settings = {PROVIDER: f"{SPARKS}.RocksDBStateStoreProvider", FORMAT: "2"}
FETCHING: Settings = {f"tableside.state.{name}": setting for name, setting in BOUNDED.items()}
"""Settings of our provider with so few values in memory that most are fetched."""

COPYING: Settings = {f"tableside.state.{name}": setting for name, setting in COPIED.items()}
"""The same, with copies of read and written values on the local disk."""

TIDYING: Settings = {"tableside.state.deltas_max": "3", RETAINED: "2", INTERVAL: "200ms"}
"""Settings of our provider with snapshots in commits, and removal of old versions while queries run."""

SESSION: Settings = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.codegen.wholeStage": "false",  # for so few rows, compilation takes longer than it saves
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # Hadoop's default on a local disk starts two processes for each file, this one starts one
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.sql.streaming.checkpointFileManagerClass": FILE_MANAGER,
    "spark.driver.extraJavaOptions": QUICK_START,
}

_with_jar: JavaGateway | None = None
"""The gateway to the JVM of this process, if that was started with the jar."""


def ours(url: str, table: str, checkpoint_format: int, *more: Settings) -> Settings:
    """Return the settings of our provider, with a table of a service."""
    settings = {PROVIDER: OURS, FORMAT: str(checkpoint_format)}
    settings |= {"tableside.state.url": url, "tableside.state.table": table}
    for each in more:
        settings |= each
    return settings


@contextmanager
def state_session(master: str, more: Settings | None = None) -> Iterator[SparkSession]:
    """Open a session that can use any of the providers through its configuration.

    Its JVM starts with the jar, as in a program. The next session of this kind uses the same JVM, which by then
    has loaded and compiled most of Spark. A JVM that other sessions left in this process is ended first.
    """
    global _with_jar
    settings = {**SESSION, "spark.jars": str(ensure_jar(ensure_javac()))}
    if SparkContext._gateway is None or SparkContext._gateway is not _with_jar:
        end_jvm()
        set_environment()
        # without `more`, which is for this session only: all sessions of a JVM share its start settings
        SparkContext._ensure_initialized(conf=SparkConf(loadDefaults=False).setAll(list(settings.items())))
        _with_jar = SparkContext._gateway
    with session(master, {**settings, **(more or {})}) as spark:
        yield spark


@contextmanager
def configured(spark: SparkSession, settings: Settings) -> Iterator[None]:
    """Apply settings to a session inside the block."""
    for name, setting in settings.items():
        spark.conf.set(name, setting)
    try:
        yield
    finally:
        for name in settings:
            spark.conf.unset(name)


def unload(spark: SparkSession) -> None:
    """Close every state store that the JVM has loaded, so that the next micro-batch reads its state again."""
    assert spark._jvm is not None
    spark._jvm.org.apache.spark.sql.execution.streaming.state.StateStore.stop()


def query_id(checkpoint: Path) -> str:
    """Return the id that Spark gave a query at its first start, which identifies its state."""
    return str(json.loads((checkpoint / "metadata").read_text())["id"])
