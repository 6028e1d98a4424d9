"""Updates of a stream in micro-batches from PySpark: folded to one update per key, and the alternatives.

A year of flights updates the records of its aircraft: in Redis, and through the service also in RocksDB. After each
variant, its table must contain the expected records. All variants read the same frames with one partition per core, and
shuffle into the same number of partitions. Adaptive query execution is off, as in a streaming query.
"""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import yaml
from examples.demo.service import HOST, free_port, running
from examples.demo.session import session
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
RATES = {"per_second": "rows", "per_cpu_second": "rows per CPU second of all"}
HEADINGS = ("rows/s", "ratios", "rows/CPU s", "ratios", "operations", "store calls", "Redis: scripts", "commands")
TITLE = f"""
Updates of flights, by the clock and by the CPU time of all that takes part.
Ratios are to "{SCRIPT}" and to "{PIPELINED}".
"""


def run(rows: int, rounds: int) -> list[Result]:
    """Measure all variants in turn over several rounds and return the medians. The counts are from the last round."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        updates = flight_updates.read(folder, rows)
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
    """Return all variants, the baseline first."""
    ways = [
        Way(SCRIPT, "", update_ways.row_by_row(redis_url)),
        Way("redis-py, row by row, WATCH and SET", "", update_ways.watched(redis_url)),
        Way(PIPELINED, "", update_ways.pipelined(redis_url)),
        Way("redis-py, aggregated by hand, pipelined", "", update_ways.aggregated(redis_url)),
        Way("written nowhere: Spark alone", "", update_ways.nowhere(), applies=False),
    ]
    for store in STORES:
        ways += [
            Way(f"service, {store}, one operation for each row", store, update_ways.with_client(url)),
            Way(f"service, {store}, Table.update, fold=False", store, update_ways.with_table(url, fold=False)),
            Way(f"service, {store}, Table.update", store, update_ways.with_table(url, fold=True)),
        ]
    return ways


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
    """Provide a session that plans queries like streaming queries."""
    with session(folder / "spark") as spark:
        spark.conf.set("spark.sql.adaptive.enabled", value=False)
        spark.conf.set("spark.sql.shuffle.partitions", spark.sparkContext.defaultParallelism)
        yield spark


def _frame(spark: SparkSession, rows: pa.Table) -> DataFrame:
    frame = spark.createDataFrame(rows).repartition(spark.sparkContext.defaultParallelism).cache()
    frame.count()
    return frame


def _results(ways: Sequence[Way]) -> list[Result]:
    """Return the rates per second and per CPU second of all processes, with the counts."""
    found = []
    for name, unit in RATES.items():
        rates = [(way.name, way.median(name)) for way in ways]
        for result, way in zip(group("updates of flights", unit, rates, {}), ways, strict=True):
            found.append(replace(result, counts=way.samples[-1].counts()))
    return found


def _explain(ways: Sequence[Way]) -> None:
    shown = Table("way", title=TITLE, title_justify="left")
    for heading in HEADINGS:
        shown.add_column(heading, justify="right")
    baselines = [way for way in ways if way.name in (SCRIPT, PIPELINED)]
    for way in ways:
        shown.add_row(way.name, *_rates(way, baselines), *_counted(way.samples[-1]))
    Console(width=WIDTH).print(shown)


def _rates(way: Way, baselines: Sequence[Way]) -> Iterator[str]:
    for name in RATES:
        rate = way.median(name)
        yield f"{rate:,.0f}"
        yield "  ".join(f"{rate / baseline.median(name):.2f}" for baseline in baselines)


def _counted(sample: Sample) -> list[str]:
    """Return the counts as text. Commands inside scripts count, calls of scripts do not."""
    scripts = sample.commands.get("evalsha", 0)
    commands = sum(sample.commands.values()) - scripts
    return [f"{count:,}" if count else "" for count in (sample.operations, sample.store_calls, scripts, commands)]
