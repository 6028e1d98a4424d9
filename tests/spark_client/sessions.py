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
from pyspark.sql import SparkSession

from spark_client.quick_start import QUICK_START, ensure_archive
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


def stored(service: Service, table: str) -> dict[Any, Any]:
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
