"""Scans of a table by the data source with several numbers of splits, and by the client with several page sizes."""

import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import pyarrow as pa
from examples.demo.service import running
from examples.demo.session import session
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from tableside_client import Client
from tableside_spark.datasource.options import default_splits

from . import records
from .report import Result, group

ROWS_MAX = 200_000
BATCH_ROWS = 5_000
SPLITS = (1, 2, 4, 8, 16, 32)
PAGES = (10_000, 5_000, 1_000)
SCHEMA = "key string, manufacturer string, seats int, year int"


def run(rows: int, rounds: int) -> list[Result]:
    """Measure all settings in turn, several rounds, and return the best rates in records per second."""
    rows = min(rows, ROWS_MAX)
    with tempfile.TemporaryDirectory() as folder:
        for name in ("service", "spark"):
            (Path(folder) / name).mkdir()
        with running(Path(folder) / "service") as service, session(Path(folder) / "spark") as spark:
            _fill(service.url, rows)
            ways = {_default(): partial(_read, spark, service.url, rows, None)}
            ways |= {f"{splits} splits": partial(_read, spark, service.url, rows, splits) for splits in SPLITS}
            reads = _best_rates(ways, rows, rounds)
            pages = {f"pages of {limit:,}": partial(_scan, service.url, rows, limit) for limit in PAGES}
            scans = _best_rates(pages, rows, rounds)
    return [*group("data source", "records", reads, {}), *group("client, one thread", "records", scans, {})]


def _default() -> str:
    return f"default, {default_splits()} splits"


def _fill(url: str, rows: int) -> None:
    with Client(url) as client:
        for start in range(0, rows, BATCH_ROWS):
            keys = [records.key(index) for index in range(start, min(start + BATCH_ROWS, rows))]
            batch = pa.table({"key": keys, "value": [records.value_of(key) for key in keys]})
            assert client.arrow_table(records.TABLE).batch(batch, op="put")["code"].null_count == len(keys)


def _read(spark: SparkSession, url: str, rows: int, splits: int | None) -> None:
    reader = spark.read.format("tableside").options(url=url, table=records.TABLE).schema(SCHEMA)
    frame = (reader if splits is None else reader.option("splits", splits)).load()
    [row] = frame.agg(f.count("manufacturer"), f.sum("seats"), f.max("year")).collect()
    assert row[0] == rows, row


def _scan(url: str, rows: int, limit: int) -> None:
    with Client(url) as client:
        assert sum(map(len, client.arrow_table(records.TABLE).scan(limit=limit))) == rows


def _best_rates(ways: Mapping[str, Callable[[], None]], rows: int, rounds: int) -> list[tuple[str, float]]:
    """Return the best rate of each way. The ways take turns, and a first round warms up."""
    times: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(rounds + 1):
        for way, work in ways.items():
            started = time.perf_counter()
            work()
            times[way].append(time.perf_counter() - started)
    return [(way, rows / min(taken[1:])) for way, taken in times.items()]
