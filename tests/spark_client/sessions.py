"""Spark sessions for tests: one at a time in a process, each module starts and stops its own."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark.sql import SparkSession


@contextmanager
def session(master: str, settings: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """A classic session whose workers run this interpreter; `settings` come on top of what is common to all."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(master)
    for name, setting in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.session.timeZone": "America/New_York",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        **(settings or {}),
    }.items():
        builder = builder.config(name, setting)
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()
