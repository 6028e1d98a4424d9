"""Join, put, update and scan from PySpark on Redis and RocksDB, against redis-py in `mapInArrow` on the same Redis.

The ways take turns, a first round warms up, and the rates are medians. redis-py reads with `MGET` and writes with
`SET` in pipelines of 1,000 keys, and Spark parses its values with `from_json`. It updates each row by a script, in
pipelines of 1,000 calls.
"""

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from statistics import median

import pyarrow as pa
import yaml
from examples.demo.service import running
from examples.demo.session import session
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from redis import Redis

from servers.redis import redis
from tableside_spark import Table

from . import update_ways
from .report import Result, group

ROWS_MAX = 500_000
BATCH = 1_000
SCHEMA = "manufacturer string, seats int, year int"
STORES = ("redis", "rocksdb")
JOIN_TARGETS = {"redis": 1.4, "rocksdb": 1.2}
REPEATED_TARGETS = {"redis": 2.0, "rocksdb": 2.0}
PUT_TARGETS = {"redis": 1.5, "rocksdb": 1.3}
UPDATE_TARGETS = {"redis": 4.7}
SCAN_TARGETS = {"redis": 2.0, "rocksdb": 3.0}
DIRECT = "redis-py in mapInArrow"


def run(rows: int, rounds: int) -> list[Result]:
    """Measure all ways in turn, and return the median rates in rows per second."""
    rows = min(rows, ROWS_MAX)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in ("redis", "service", "spark"):
            (folder / part).mkdir()
        with redis(folder / "redis") as url:
            (folder / "tables.yaml").write_text(_configuration(url, folder))
            with (
                running(folder / "service", config=folder / "tables.yaml") as service,
                session(folder / "spark") as spark,
            ):
                return _Comparison(spark, service.url, url, rows, rounds).results()


def _configuration(url: str, folder: Path) -> str:
    stores = {"redis": {"kind": "redis", "url": url}, "rocksdb": {"kind": "rocksdb", "path": str(folder / "rocksdb")}}
    tables = {table: {"store": store} for store in stores for table in (store, _updated_table(store))}
    return yaml.safe_dump({"stores": stores, "tables": tables})


def _updated_table(way: str) -> str:
    return f"{'direct' if way == DIRECT else way}-updates"


class _Comparison:
    def __init__(self, spark: SparkSession, url: str, redis_url: str, rows: int, rounds: int) -> None:
        self._spark = spark
        self._url = url
        self._redis_url = redis_url
        self._rows = rows
        self._rounds = rounds
        self._updates = 0
        self._tables = {store: Table(store, url=url) for store in STORES}

    def results(self) -> list[Result]:
        """Put first, so that the tables have the records that joins and scans read."""
        puts: dict[str, Callable[[], None]] = {DIRECT: self._put_directly}
        puts |= {store: partial(self._put, table) for store, table in self._tables.items()}
        results = group("put", "rows", self._rates(puts), PUT_TARGETS)
        shuffled = self._keys(f.col("id") * 7919 % self._rows)
        results += group("join, keys unique, in no order", "rows", self._joins(shuffled), JOIN_TARGETS)
        repeated = self._keys(f.pmod(f.hash("id"), f.lit(max(1, self._rows // 100))))
        results += group("join, 1 key in 100 unique", "rows", self._joins(repeated), REPEATED_TARGETS)
        updated = self._skewed()
        updates: dict[str, Callable[[], None]] = {DIRECT: partial(self._update, DIRECT, updated)}
        updates |= {store: partial(self._update, store, updated) for store in STORES}
        results += group("update, keys skewed", "rows", self._rates(updates), UPDATE_TARGETS)
        for store in STORES:
            [row] = self._records(_updated_table(store), "flights long").agg(f.sum("flights")).collect()
            assert row[0] == self._rows * (self._rounds + 1), row
        for store, table in self._tables.items():
            ways = {"join, keys unique": partial(self._join, table, shuffled), store: partial(self._scan, store)}
            results += group(f"scan, {store}", "rows", self._rates(ways), SCAN_TARGETS)
        return results

    def _keys(self, number: Column) -> DataFrame:
        return self._spark.range(self._rows).select(f.format_string("N%06d", number).alias("tailnum"), "id")

    def _joins(self, frame: DataFrame) -> list[tuple[str, float]]:
        ways: dict[str, Callable[[], None]] = {DIRECT: partial(self._join_directly, frame)}
        return self._rates(ways | {store: partial(self._join, table, frame) for store, table in self._tables.items()})

    def _join(self, table: Table, frame: DataFrame) -> None:
        self._consume(table.enrich(frame, on="tailnum", schema=SCHEMA, how="inner"))

    def _join_directly(self, frame: DataFrame) -> None:
        found = frame.mapInArrow(_reader(self._redis_url), "tailnum string, id long, value string")
        parsed = found.select("tailnum", "id", f.from_json("value", SCHEMA).alias("value"))
        self._consume(parsed.select("tailnum", "id", "value.*"))

    def _scan(self, store: str) -> None:
        self._consume(self._records(store, SCHEMA))

    def _records(self, table: str, schema: str) -> DataFrame:
        reader = self._spark.read.format("tableside").options(url=self._url, table=table)
        return reader.schema(f"key string, {schema}").load()

    def _consume(self, frame: DataFrame) -> None:
        [row] = frame.agg(f.count("manufacturer"), f.sum("seats"), f.max("year")).collect()
        assert row[0] == self._rows, row

    def _skewed(self) -> DataFrame:
        """Return rows of 1 key in 100 of which the first occur most often."""
        keys = max(1, self._rows // 100)
        even = f.pmod(f.hash("id"), f.lit(keys))
        frame = self._keys(f.floor(even * even / keys))
        return frame.select("tailnum", (f.col("id") % 1000).alias("distance"), f.col("id").alias("arrived"))

    def _update(self, way: str, frame: DataFrame) -> None:
        write = (
            update_ways.pipelined(self._redis_url) if way == DIRECT else update_ways.with_table(self._url, fold=True)
        )
        self._updates += 1
        write(frame, _updated_table(way), self._updates)

    def _planes(self) -> DataFrame:
        return self._spark.range(self._rows).select(
            f.format_string("N%06d", "id").alias("tailnum"),
            f.lit("BOEING").alias("manufacturer"),
            f.format_string("737-%d", "id").alias("model"),
            (f.col("id") % 300).alias("seats"),
            (f.col("id") % 50 + 1970).alias("year"),
            f.lit("Fixed wing multi engine").alias("type"),
        )

    def _put(self, table: Table) -> None:
        summary = table.put(self._planes(), key="tailnum")
        assert summary.applied == self._rows, summary

    def _put_directly(self) -> None:
        planes = self._planes()
        value = f.to_json(f.struct(*[name for name in planes.columns if name != "tailnum"]))
        rows = planes.select("tailnum", value.alias("value"))
        [row] = rows.mapInArrow(_writer(self._redis_url), "written long").agg(f.sum("written")).collect()
        assert row[0] == self._rows, row

    def _rates(self, ways: Mapping[str, Callable[[], None]]) -> list[tuple[str, float]]:
        times: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(self._rounds + 1):
            for way, work in ways.items():
                started = time.perf_counter()
                work()
                times[way].append(time.perf_counter() - started)
        return [(way, self._rows / median(taken[1:])) for way, taken in times.items()]


def _reader(url: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function that adds the value of each row's key, read with redis-py."""

    def look_up(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        client = Redis.from_url(url)
        for batch in batches:
            keys = [f"direct:{key}" for key in batch["tailnum"].to_pylist()]
            found: list[bytes | str | None] = []
            for start in range(0, len(keys), BATCH):
                found += client.mget(keys[start : start + BATCH])
            yield batch.append_column("value", pa.array(found, pa.binary()).cast(pa.string()))

    return look_up


def _writer(url: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function that writes each row's value with redis-py."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        client = Redis.from_url(url)
        for batch in batches:
            pairs = list(zip(batch["tailnum"].to_pylist(), batch["value"].to_pylist(), strict=True))
            for start in range(0, len(pairs), BATCH):
                pipeline = client.pipeline(transaction=False)
                for key, value in pairs[start : start + BATCH]:
                    pipeline.set(f"direct:{key}", value)
                pipeline.execute()
            yield pa.record_batch([pa.array([len(pairs)], pa.int64())], ["written"])

    return write
