"""The service's resident size, second by second, while clients send batches at full speed."""

import json
import random
import tempfile
import threading
import time
from functools import partial
from pathlib import Path

import psutil
from examples.demo.service import running

from . import records
from .load import Request, requests_per_second

RECORDS = 100_000
BATCH = 1000
CONNECTIONS = 4
CONFIG = """
stores: {{r: {{kind: rocksdb, path: {path}, block_cache_bytes: 67108864, write_buffer_bytes: 16777216}}}}
tables: {{{table}: {{store: r}}}}
"""


def run(seconds: float) -> dict[str, float]:
    """Send batches of gets, puts and updates, and return the resident size when idle, at most, and at the end.

    Sizes are in MB. RocksDB has a block cache of 64 MB and two write buffers of 16 MB. The service uses the rest.
    """
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "soak.yaml"
        config.write_text(CONFIG.format(path=Path(folder) / "data", table=records.TABLE))
        with running(Path(folder), config=config) as service:
            process = psutil.Process(service.process.pid)
            idle = _resident_mb(process)
            sizes: list[float] = []
            done = threading.Event()
            watcher = threading.Thread(target=_watch, args=(process, sizes, done))
            watcher.start()
            try:
                rate = requests_per_second(service.url, _mixed(), connections=CONNECTIONS, seconds=seconds)
            finally:
                done.set()
                watcher.join()
            return {"idle_mb": idle, "max_mb": max(sizes), "end_mb": sizes[-1], "operations_per_s": rate * BATCH}


def _mixed() -> list[Request]:
    chance = random.Random(1)
    kinds = (records.gets_as_arrow, records.puts_as_arrow, partial(records.increments_as_json, default={"seats": 0}))
    return [make(_keys(chance)) for _ in range(20) for make in kinds]


def _keys(chance: random.Random) -> list[str]:
    return [records.key(index) for index in chance.sample(range(RECORDS), BATCH)]


def _watch(process: psutil.Process, sizes: list[float], done: threading.Event) -> None:
    while not done.is_set():
        sizes.append(_resident_mb(process))
        time.sleep(0.5)
    sizes.append(_resident_mb(process))


def _resident_mb(process: psutil.Process) -> float:
    return float(process.memory_info().rss) / 1e6


if __name__ == "__main__":
    print(json.dumps(run(120.0), indent=2))
