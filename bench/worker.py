"""The memory of a Python worker of Spark while it joins one partition of five million rows with a table."""

import json
import tempfile
import threading
import time
from pathlib import Path

import psutil
from examples.demo.service import running
from examples.demo.session import session
from pyspark.sql import functions as f

from tableside_spark import Table

from . import records
from .load import send_all

ROWS = 5_000_000
KEYS = 100_000


def run(rows: int = ROWS) -> dict[str, float]:
    """Join the rows, one partition, and return the largest resident size of a worker in MB, and rows per second."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "service").mkdir()
        (folder / "spark").mkdir()
        with running(folder / "service") as service, session(folder / "spark") as spark:
            send_all(service.url, list(records.puts(KEYS)))
            frame = spark.range(0, rows, 1, 1).select(
                f.format_string("N%06d", f.col("id") % KEYS).alias("tailnum"), "id"
            )
            joined = Table(records.TABLE, url=service.url).enrich(frame, on="tailnum", schema="seats int")
            sizes, done = [0.0], threading.Event()
            watcher = threading.Thread(target=_watch, args=(sizes, done))
            watcher.start()
            started = time.perf_counter()
            try:
                [row] = joined.agg(f.count("seats")).collect()
            finally:
                done.set()
                watcher.join()
            assert row[0] == rows, row
            return {"worker_max_mb": max(sizes), "rows_per_s": rows / (time.perf_counter() - started)}


def _watch(sizes: list[float], done: threading.Event) -> None:
    while not done.is_set():
        for process in psutil.Process().children(recursive=True):
            try:
                if "pyspark" in " ".join(process.cmdline()) and process.name().startswith("python"):
                    sizes.append(process.memory_info().rss / 1e6)
            except psutil.Error:
                continue
        time.sleep(0.2)


if __name__ == "__main__":
    print(json.dumps(run(), indent=2))
