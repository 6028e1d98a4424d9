"""With the default retries, jobs survive a restart of the service in the middle of them, and count correctly."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pyarrow as pa
import pytest
from pyspark.sql import (
    DataFrame,
    SparkSession,
    functions as F,  # noqa: N812 - its name everywhere
)
from pyspark.sql.functions import col, lit

from spark_client.restarted_service import RestartedService
from spark_client.sessions import jvm, session
from support.waiting import until
from tableside_client import Client
from tableside_spark import ChunkSize, Table, WriteSummary

pytestmark = jvm("spark")

ROWS = 20_000
RATE_LIMIT = {"rate_per_s": 100, "burst": 1_000}
"""The rate limit until the restart: no job can end before it."""

WITHIN_S = 600.0
"""How long a step may take on a busy machine."""

AWAY_S = [12.0, pytest.param(30.0, marks=pytest.mark.full)]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with session("local[3,1]") as started:  # a failed task would fail its job
        yield started


@pytest.fixture
def service(tmp_path: Path) -> Iterator[RestartedService]:
    configure(tmp_path, RATE_LIMIT)
    with RestartedService(tmp_path / "service", tmp_path / "tableside.yaml", {}) as started:
        yield started


def configure(directory: Path, limit: Mapping[str, int]) -> None:
    tables = {"read": {"store": "r"}, "joined": {"store": "r", "read": limit}, "counts": {"store": "r", "write": limit}}
    stores = {"r": {"kind": "rocksdb", "path": str(directory / "data")}}
    (directory / "tableside.yaml").write_text(json.dumps({"stores": stores, "tables": tables}))


@pytest.mark.parametrize("away_s", AWAY_S)
def test_an_update_a_join_and_a_scan_survive_a_restart(
    spark: SparkSession, service: RestartedService, tmp_path: Path, away_s: float
) -> None:
    fill(service.url)
    is_back = tmp_path / "is-back"
    with ThreadPoolExecutor(3) as threads:
        updating = threads.submit(update, spark, service.url)
        joining = threads.submit(join, spark, service.url)
        until(lambda: operations(service.url, "counts", "update") > 0, WITHIN_S)
        until(lambda: operations(service.url, "joined", "get") > 0, WITHIN_S)
        scanning = threads.submit(scan, spark, service.url, is_back)
        until(lambda: operations(service.url, "read", "scan") > 0, WITHIN_S)
        configure(tmp_path, {})
        service.kill_and_restart(away_s)
        is_back.touch()
        summary = updating.result()
        assert joining.result() == scanning.result() == (ROWS, sum(range(ROWS)))
    assert (summary.sent, summary.failed, summary.applied + summary.replayed) == (2 * ROWS, 0, 2 * ROWS)
    assert summary.waited_s > away_s / 2
    assert counts(service.url) == {2}


def fill(url: str) -> None:
    keys = [f"k{number}" for number in range(ROWS)]
    values = [json.dumps({"n": number}) for number in range(ROWS)]
    with Client(url) as client:
        for table in ("read", "joined"):
            assert (
                client.arrow_table(table).batch(pa.table({"key": keys, "value": values}), op="put")["code"].null_count
                == ROWS
            )


def frame(spark: SparkSession, rows: int) -> DataFrame:
    return spark.range(rows).coalesce(1).select(F.concat(lit("k"), col("id") % ROWS).alias("k"))


def table(name: str, url: str) -> Table:
    return Table(name, url, chunk=ChunkSize(200), in_flight_max=1)


def update(spark: SparkSession, url: str) -> WriteSummary:
    summary = table("counts", url).update(frame(spark, 2 * ROWS), "k", {"$inc": {"n": 1}}, default={"n": 0})
    assert isinstance(summary, WriteSummary)
    return summary


def join(spark: SparkSession, url: str) -> tuple[int, int]:
    return summed(table("joined", url).join(frame(spark, ROWS), "k", "n long", "inner"))


def scan(spark: SparkSession, url: str, is_back: Path) -> tuple[int, int]:
    """Read the table by splits. After the first pages, reading continues when the file `is_back` exists."""
    reader = spark.read.format("tableside").option("url", url).option("table", "read").option("splits", 8)
    frame = reader.schema("key string, n long").load()
    return summed(frame.mapInArrow(pause_after_first_page(is_back), frame.schema))


def pause_after_first_page(is_back: Path) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def pages(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            until(is_back.exists, WITHIN_S)
            yield batch

    return pages


def summed(frame: DataFrame) -> tuple[int, int]:
    [row] = frame.agg(F.count("n"), F.sum("n")).collect()
    return row[0], row[1]


def operations(url: str, name: str, kind: str) -> float:
    """Return how many operations of a kind on a table the service has finished since its start."""
    labels = {"tableside_operations_total", f'table="{name}"', f'operation="{kind}"'}
    lines = httpx.get(f"{url}/metrics").text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if labels <= set(re.split("[{,}]", line)))


def counts(url: str) -> set[int]:
    """Return the different values of `n` in the table `counts`, which has a record for each key."""
    with Client(url) as client:
        values = [
            json.loads(value.as_py())["n"] for page in client.arrow_table("counts").scan() for value in page["value"]
        ]
    assert len(values) == ROWS
    return set(values)
