"""Spark sessions for tests, one Spark at a time in a process, and the tables that they write.

Modules that need no special master share the session of the fixture `spark`. `session` replaces it.
"""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from servers.kafka import spark_kafka_jars
from spark_client.quick_start import QUICK_START, ensure_archive
from support.restarted_service import RestartedService
from support.running import Service
from tableside_client import Client

PYTHON_WORKERS = str(Path(__file__).with_name("python_workers"))
PYSPARK_VERSION = tuple(map(int, pyspark.__version__.split(".")[:2]))
FILE_MANAGER = (
    "org.apache.spark.sql.execution.streaming."
    f"{'checkpointing.' if PYSPARK_VERSION >= (4, 1) else ''}FileSystemBasedCheckpointFileManager"
)
LEAN = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": QUICK_START,
    "spark.executor.extraJavaOptions": QUICK_START,
    "spark.python.daemon.module": "ready_daemon",
    "spark.executorEnv.PYTHONPATH": PYTHON_WORKERS,
    # The default implementation starts two processes for each file on a local disk.
    "spark.sql.streaming.checkpointFileManagerClass": FILE_MANAGER,
}
"""Settings of a Spark for short tests with little data."""


def jvm(group: str) -> list[pytest.MarkDecorator]:
    """Return the marks of a module that uses Spark, and runs in one process with the other modules of its group."""
    ignored = pytest.mark.filterwarnings("ignore::ResourceWarning")  # Spark leaves sockets to the collector.
    return [pytest.mark.jvm, pytest.mark.xdist_group(group), ignored]


def stored(service: Service | RestartedService, table: str) -> dict[Any, Any]:
    """Return the values of a table by their keys."""
    with Client(service.url) as client:
        rows = [row for page in client.arrow_table(table).scan() for row in page.to_pylist()]
    return {row["key"]: json.loads(row["value"]) for row in rows}


@contextmanager
def session(master: str, settings: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """Open a classic session whose workers run this interpreter. `settings` extend the common settings."""
    stop()
    spark = start(master, settings)
    try:
        yield spark
    finally:
        spark.stop()


def start(master: str, settings: Mapping[str, str] | None = None) -> SparkSession:
    """Start Spark, and a JVM if the process has none."""
    set_environment()
    builder = SparkSession.builder.master(master)
    for name, setting in {
        **LEAN,
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "America/New_York",
        **(settings or {}),
    }.items():
        builder = builder.config(name, setting)
    return builder.getOrCreate()


def set_environment() -> None:
    """Prepare the archive of classes, and the Python of the workers, for JVMs that this process starts."""
    ensure_archive()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    found = os.environ.get("PYTHONPATH", "")
    if PYTHON_WORKERS not in found.split(os.pathsep):
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [found, PYTHON_WORKERS]))


def is_running(spark: SparkSession | None) -> bool:
    """Return whether a session was started and its Spark still runs."""
    return spark is not None and spark._sc._jsc is not None


def stop() -> None:
    """Stop the Spark of this process if it runs. Its JVM continues."""
    running = SparkSession._instantiatedSession
    if running is not None and is_running(running):
        running.stop()


ATTEMPTS = 2
"""The maximum number of attempts of a task."""

CONNECTOR_VERSION = (4, 2)
"""The oldest Spark that the connector works with."""

_shared: SparkSession | None = None
_gateway: object = None


def shared_session() -> SparkSession:
    """Return a session with separate configuration and temporary views, in the shared Spark.

    Starts Spark if it does not run. Its JVM starts with Spark's connector to Kafka, as in a program that
    configures it before the start. A JVM of earlier sessions lacks the connector, so it is ended first.
    """
    global _shared, _gateway
    if _shared is None or not is_running(_shared):
        if SparkContext._gateway is None or SparkContext._gateway is not _gateway:
            end_jvm()
        stop()
        jars = spark_kafka_jars() if PYSPARK_VERSION >= CONNECTOR_VERSION else []
        _shared = start(f"local[2,{ATTEMPTS}]", {"spark.jars": ",".join(map(str, jars))})
        _gateway = SparkContext._gateway
    return _shared.newSession()


def end_jvm() -> None:
    """End the JVM of this process and its Spark. The next session starts a new one."""
    stop()
    gateway = SparkContext._gateway
    if gateway is None:
        return
    gateway.shutdown()
    gateway.proc.stdin.close()  # the JVM ends when its standard input closes
    gateway.proc.wait(30)
    SparkContext._gateway = SparkContext._jvm = None
