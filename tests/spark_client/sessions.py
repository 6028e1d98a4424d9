"""Spark sessions for tests: one Spark at a time in a process.

Modules that need no other master share one, which the fixture `spark` gives them; `session` takes its place.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

PYTHON_WORKERS = str(Path(__file__).with_name("python_workers"))
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
LEAN = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # A JVM that lives for a minute does not earn back the time of a better compiler.
    "spark.driver.extraJavaOptions": QUICK_START,
    "spark.executor.extraJavaOptions": QUICK_START,
    "spark.python.daemon.module": "ready_daemon",
    "spark.executorEnv.PYTHONPATH": PYTHON_WORKERS,
    # The default one starts two processes for each file on a local disk.
    "spark.sql.streaming.checkpointFileManagerClass": "org.apache.spark.sql.execution.streaming.checkpointing."
    "FileSystemBasedCheckpointFileManager",
}
"""Settings of a Spark that does little for a short time."""


@contextmanager
def session(master: str, settings: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """A classic session whose workers run this interpreter; `settings` come on top of what is common to all."""
    stop()
    spark = start(master, settings)
    try:
        yield spark
    finally:
        spark.stop()


def start(master: str, settings: Mapping[str, str] | None = None) -> SparkSession:
    """Start Spark, and its JVM if the process has none."""
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
    """Say to a JVM that this process starts which Python its workers run, and where `ready_daemon` is."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    found = os.environ.get("PYTHONPATH", "")
    if PYTHON_WORKERS not in found.split(os.pathsep):
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [found, PYTHON_WORKERS]))


def is_running(spark: SparkSession | None) -> bool:
    """Whether a session was started and its Spark is not stopped."""
    return spark is not None and spark._sc._jsc is not None


def stop() -> None:
    """Stop the Spark of this process, if it runs; its JVM stays."""
    running = SparkSession._instantiatedSession
    if running is not None and is_running(running):
        running.stop()
