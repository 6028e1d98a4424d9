"""Spark sessions for tests: one at a time in a process, each module starts and stops its own."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession


@contextmanager
def session(master: str) -> Iterator[SparkSession]:
    """A classic session whose workers run this interpreter."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(master)
    for name, setting in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.session.timeZone": "America/New_York",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }.items():
        builder = builder.config(name, setting)
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()
