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


def warm_up(spark: SparkSession) -> None:
    """Start a Python process for each core, as the first job with a Python function would."""
    cores = spark.sparkContext.defaultParallelism
    spark.range(0, cores, 1, cores).mapInArrow(lambda batches: batches, "id long").collect()


class RowsRead:
    """Counts the rows that Spark has read from files since this object was made."""

    def __init__(self, spark: SparkSession) -> None:
        self._store = spark.sparkContext._jsc.sc().statusStore()  # noqa: SLF001 - no public method has rows
        self._rows: dict[int, int] = {}

    def __call__(self) -> int:
        """Return the number of rows in the tasks that have ended."""
        stages = self._store.activeStages()
        for stage in (stages.apply(index) for index in range(stages.size())):
            self._rows[stage.stageId()] = stage.inputRecords()
        return sum(self._rows.values())
