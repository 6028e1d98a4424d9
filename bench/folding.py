"""Updates of a stream, in micro-batches from PySpark: folded to one for each key, and what a user would do instead.

A year of flights adds to the records of its aircraft: in Redis, and through the service in RocksDB too. After each way
its table has to hold what the flights add up to. Every way reads the same frames, of one partition for each core, and
shuffles, where it does, to as many, without Spark's own changes of the plan: those are off in a streaming query.
"""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median

import pyarrow as pa
import yaml
from demo.service import HOST, free_port, running
from demo.session import session
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table

from servers.redis import redis

from . import flight_updates, update_ways
from .report import WIDTH, Result, group
from .update_samples import WARM, Measured, Sample, Way

SCRIPT = "redis-py, row by row, a script"
PIPELINED = "redis-py, pipelined, the same script"
STORES = ("redis", "rocksdb")
HEADINGS = ("rows/s", "to a script", "to pipelined", "rows/CPU s", "operations", "store calls", "Redis's commands")


def run(rows_max: int, rounds: int = 3) -> list[Result]:
    """Measure every way in turn, several times over, and return the medians; the counts are the last round's."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        updates = flight_updates.read(folder, rows_max)
        redis_url, port = stack.enter_context(redis(folder / "redis")), free_port()
        url = f"http://{HOST}:{port}"
        ways = _ways(url, redis_url)
        stack.enter_context(running(folder, port, config=_config(folder, redis_url, ways, [WARM, *range(rounds)])))
        spark = stack.enter_context(_streaming(folder))
        measured = Measured(updates, [_frame(spark, batch) for batch in updates.micro_batches], url, redis_url)
        for way in ways:
            measured.warm(way)
        for turn in range(rounds):
            for way in ways:
                measured.measure(way, turn)
    print(f"  {updates.rows:,} rows of {len(updates.expected):,} keys in {len(updates.micro_batches)} micro-batches")
    _explain(ways)
    return _results(ways)


def _ways(url: str, redis_url: str) -> list[Way]:
    """Return every way, the baseline first."""
    direct = [
        Way(SCRIPT, "", update_ways.row_by_row(redis_url)),
        Way("redis-py, row by row, WATCH and SET", "", update_ways.watched(redis_url)),
        Way(PIPELINED, "", update_ways.pipelined(redis_url)),
        Way("redis-py, aggregated by hand, pipelined", "", update_ways.aggregated(redis_url)),
    ]
    for store in STORES:
        direct += [
            Way(f"service, {store}, one operation for each row", store, update_ways.with_client(url)),
            Way(f"service, {store}, Table.update, fold=False", store, update_ways.with_table(url, fold=False)),
            Way(f"service, {store}, Table.update", store, update_ways.with_table(url, fold=True)),
        ]
    return direct


def _config(folder: Path, redis_url: str, ways: Sequence[Way], turns: Sequence[object]) -> Path:
    stores = {
        "redis": {"kind": "redis", "url": redis_url},
        "rocksdb": {"kind": "rocksdb", "path": str(folder / "data")},
    }
    tables = {way.table(turn): {"store": way.store, "create": True} for way in ways if way.store for turn in turns}
    file = folder / "stores.yaml"
    file.write_text(yaml.safe_dump({"stores": stores, "tables": tables}))
    return file


@contextmanager
def _streaming(folder: Path) -> Iterator[SparkSession]:
    """Provide a session that plans as streaming queries do."""
    with session(folder / "spark") as spark:
        spark.conf.set("spark.sql.adaptive.enabled", value=False)
        spark.conf.set("spark.sql.shuffle.partitions", spark.sparkContext.defaultParallelism)
        yield spark


def _frame(spark: SparkSession, rows: pa.Table) -> DataFrame:
    frame = spark.createDataFrame(rows).repartition(spark.sparkContext.defaultParallelism).cache()
    frame.count()
    return frame


def _results(ways: Sequence[Way]) -> list[Result]:
    rates = [(way.name, _median(way, "per_second")) for way in ways]
    found = group("updates of flights", "rows", rates, {})
    return [replace(result, counts=way.samples[-1].counts()) for result, way in zip(found, ways, strict=True)]


def _explain(ways: Sequence[Way]) -> None:
    rates = {way.name: _median(way, "per_second") for way in ways}
    shown = Table("way", *HEADINGS, title="Updates of flights; ratios of rows per second")
    for way in ways:
        rate, sample = rates[way.name], way.samples[-1]
        ratios = (f"{rate / rates[baseline]:.2f}" for baseline in (SCRIPT, PIPELINED))
        shown.add_row(way.name, f"{rate:,.0f}", *ratios, f"{_median(way, 'per_cpu_second'):,.0f}", *_counted(sample))
    Console(width=WIDTH).print(shown)


def _counted(sample: Sample) -> tuple[str, str, str]:
    commands = ", ".join(f"{name} {count:,}" for name, count in sample.commands.items())
    return f"{sample.operations:,}", f"{sample.store_calls:,}", commands


def _median(way: Way, name: str) -> float:
    return float(median(getattr(sample, name) for sample in way.samples))
