"""A Spark session for one machine that says little and leaves nothing behind."""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import SparkSession

LOGGING = Path(__file__).with_name("log4j2.properties")
PARTITIONS = 8


@contextlib.contextmanager
def session(folder: Path) -> Iterator[SparkSession]:
    """Start Spark on every core with its files under `folder`; stop it at the end."""
    settings: dict[str, bool | float | int | str | None] = {
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={LOGGING.as_uri()}",
        "spark.local.dir": str(folder),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": PARTITIONS,
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": False,
        "spark.ui.showConsoleProgress": sys.stderr.isatty(),
    }
    spark = SparkSession.builder.master("local[*]").appName("flights").config(map=settings).getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()
