"""A Spark session for one machine, with little output and no files left behind."""

import contextlib
import logging
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from pyspark.sql import SparkSession

LOGGING = Path(__file__).with_name("log4j2.properties")
PARTITIONS = 8
HERE = "local[*]"


@contextlib.contextmanager
def session(folder: Path, master: str = HERE, more: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """Start Spark on every core, or on a cluster, with its files under `folder`. Stop it at the end."""
    settings: dict[str, bool | float | int | str | None] = {
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={LOGGING.as_uri()}",
        "spark.local.dir": str(folder),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": PARTITIONS,
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": False,
        "spark.ui.showConsoleProgress": sys.stderr.isatty(),
        **(more or {}),
    }
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.master(master).appName("flights").config(map=settings).getOrCreate()
    # Stop immediately on Ctrl-C. PySpark's handler would call the JVM inside the interrupted call, and log an error.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    logging.disable()
    try:
        yield spark
    except BaseException:
        with contextlib.suppress(Exception):  # an interrupted call leaves the connection to the JVM out of sync
            spark.stop()
        raise
    spark.stop()
