"""Put, join and update from PySpark with default settings, against fixed numbers of requests in flight.

The rounds of all settings alternate, and the medians count. The default settings should reach 0.9 of the best fixed
setting, without a shed request, a retry or a slow request. Two equal puts at the same time should end together.
"""

import os
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

import httpx
from examples.demo.service import Service, running
from examples.demo.session import session
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from tableside_spark import ChunkSize, Table

from . import records
from .fixed_window import FLAG
from .report import Result

DEFAULT = "default settings"
FIXED = ((2, 5_000), (4, 5_000), (8, 5_000), (8, 1_000))
"""The fixed settings: requests in flight over the whole job, and rows of each request."""

TARGET = 0.9

Job = Callable[[SparkSession, Table, int], None]


def run(rows: int, rounds: int) -> list[Result]:
    """Measure all settings in turn, and return the medians in rows per second."""
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        for name in ("service", "spark"):
            (folder / name).mkdir()
        os.environ[FLAG] = str(folder / "fixed")
        more = {"spark.python.daemon.module": "bench.fixed_window"}
        with running(folder / "service") as service, session(folder / "spark", more=more) as spark:
            _put(spark, _default(service), rows)  # The first put warms up, and makes the records.
            print(f"  load of the machine {os.getloadavg()[0]:.1f}", flush=True)
            results = [
                result for name, job in JOBS.items() for result in _measured(name, job, spark, service, rows, rounds)
            ]
            print(f"  load of the machine {os.getloadavg()[0]:.1f}", flush=True)
            return [*results, *_two_at_once(spark, service, rows, rounds)]


def _measured(name: str, job: Job, spark: SparkSession, service: Service, rows: int, rounds: int) -> list[Result]:
    tables = {DEFAULT: _default(service)} | {
        f"{in_flight} in flight, {size:,} rows each": Table(
            records.TABLE, service.url, in_flight_max=in_flight, chunk=ChunkSize(size)
        )
        for in_flight, size in FIXED
    }
    rates: dict[str, list[float]] = {way: [] for way in tables}
    troubles: dict[str, Counter[str]] = {way: Counter() for way in tables}
    for _ in range(rounds):
        for way, table in tables.items():
            _fix(is_fixed=way != DEFAULT)
            before, started = _troubles(service, table), time.perf_counter()
            job(spark, table, rows)
            rates[way].append(rows / (time.perf_counter() - started))
            troubles[way].update(_troubles(service, table) - before)
    print(f"  {name}: { ({way: dict(found) for way, found in troubles.items()}) }", flush=True)
    medians = {way: median(found) for way, found in rates.items()}
    best = max(rate for way, rate in medians.items() if way != DEFAULT)
    return [
        Result(name, way, rate, "rows", rate / best, TARGET if way == DEFAULT else None, counts=dict(troubles[way]))
        for way, rate in medians.items()
    ]


def _two_at_once(spark: SparkSession, service: Service, rows: int, rounds: int) -> list[Result]:
    """Put with two jobs of one task each, started together. The ratio is the shorter duration to the longer one."""
    _fix(is_fixed=False)

    def duration(number: int) -> float:
        started = time.perf_counter()
        table = Table(f"{records.TABLE}{number}", service.url)
        table.put(_frame(spark, rows // 2).coalesce(1), key="tailnum")
        return time.perf_counter() - started

    ratios: list[float] = []
    rates: list[float] = []
    for _ in range(rounds):
        with ThreadPoolExecutor(2) as threads:
            first, second = threads.map(duration, (1, 2))
        ratios.append(min(first, second) / max(first, second))
        rates.append(rows / max(first, second))
    return [Result("two puts at once", DEFAULT, median(rates), "rows", median(ratios), 1 / 1.3)]


def _fix(*, is_fixed: bool) -> None:
    flag = Path(os.environ[FLAG])
    if is_fixed:
        flag.touch()
    else:
        flag.unlink(missing_ok=True)


def _default(service: Service) -> Table:
    return Table(records.TABLE, service.url)


def _frame(spark: SparkSession, rows: int) -> DataFrame:
    return spark.range(rows).select(
        f.format_string("N%06d", "id").alias("tailnum"),
        f.lit("BOEING").alias("manufacturer"),
        f.format_string("737-%d", "id").alias("model"),
        (f.col("id") % 300).alias("seats"),
    )


def _put(spark: SparkSession, table: Table, rows: int) -> None:
    summary = table.put(_frame(spark, rows), key="tailnum")
    assert summary.applied == rows, summary


def _join(spark: SparkSession, table: Table, rows: int) -> None:
    keys = _frame(spark, rows).select("tailnum")
    joined = table.join(keys, on="tailnum", schema="seats int", how="inner")
    [row] = joined.agg(f.count("seats")).collect()
    assert row[0] == rows, row


def _update(spark: SparkSession, table: Table, rows: int) -> None:
    summary = table.update(_frame(spark, rows), "tailnum", {"$inc": {"seats": 1}})
    assert summary.applied == rows, summary


JOBS: dict[str, Job] = {"put": _put, "join": _join, "update": _update}


def _troubles(service: Service, table: Table) -> Counter[str]:
    """Return counts that are 0 for a healthy job: shed and slow requests of the service, and retries of writes."""
    shed = re.findall(r"^tableside_shed_total\{.*\} (\S+)$", httpx.get(f"{service.url}/metrics").text, re.MULTILINE)
    slow = service.log.read_text().count("slow request")
    return Counter(shed=int(sum(map(float, shed))), slow=slow, retried=table.stats.retried)
