"""Scans of a table by the data source with several numbers of splits, and by the client with several page sizes."""

import tempfile
from functools import partial
from pathlib import Path

from examples.demo.service import running
from examples.demo.session import session
from pyspark.sql import SparkSession, functions as f

from tableside_client import Client
from tableside_spark.datasource.options import default_splits

from . import records
from .cases import puts
from .load import send_all
from .report import Result
from .turns import Comparison, measured, rates

ROWS_MAX = 200_000
SPLITS = (1, 2, 4, 8, 16, 32)
PAGES = (10_000, 5_000, 1_000)
SCHEMA = "key string, manufacturer string, seats int, year int"


def run(rows: int, rounds: int) -> list[Result]:
    """Measure all settings in turn, several rounds, and return the medians in records per second."""
    rows = min(rows, ROWS_MAX)
    with tempfile.TemporaryDirectory() as folder:
        for name in ("service", "spark"):
            (Path(folder) / name).mkdir()
        with running(Path(folder) / "service") as service, session(Path(folder) / "spark") as spark:
            send_all(service.url, puts(rows))
            ways = {_default(): partial(_read, spark, service.url, rows, None)}
            ways |= {f"{splits} splits": partial(_read, spark, service.url, rows, splits) for splits in SPLITS}
            pages = {f"pages of {limit:,}": partial(_scan, service.url, rows, limit) for limit in PAGES}
            comparisons = [
                Comparison("data source", "records", rates(ways, rows)),
                Comparison("client, one thread", "records", rates(pages, rows)),
            ]
            return measured(comparisons, rounds, warm=True)


def _default() -> str:
    return f"default, {default_splits()} splits"


def _read(spark: SparkSession, url: str, rows: int, splits: int | None) -> None:
    reader = spark.read.format("tableside").options(url=url, table=records.TABLE).schema(SCHEMA)
    frame = (reader if splits is None else reader.option("splits", splits)).load()
    [row] = frame.agg(f.count("manufacturer"), f.sum("seats"), f.max("year")).collect()
    assert row[0] == rows, row


def _scan(url: str, rows: int, limit: int) -> None:
    with Client(url) as client:
        assert sum(map(len, client.arrow_table(records.TABLE).scan(limit=limit))) == rows
