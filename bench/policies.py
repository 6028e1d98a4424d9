"""The cost of idle policies: RocksDB with all policies and with none."""

import random
import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import yaml
from examples.demo.service import Service, running

from . import records, wrk
from .load import Request, requests_per_second, send_all
from .report import Result, group
from .single import GET

RECORDS = 100_000
BATCH = 1000
CONNECTIONS = 32

NONE, UNCACHED = "no policies", "all but a cache"
MISSES, HITS = "all, and the cache has none of it", "all, and the cache has all of it"

_DIRECTION = {"rate_per_s": 1e9, "caller_rate_per_s": 1e9, "timeout_s": 10, "attempts_max": 3}
_EVERY: dict[str, Any] = {
    "read": _DIRECTION,
    "write": _DIRECTION,
    "concurrency_max": 1000,
    "batch": {"operations_max": 1000, "linger_s": 0},
}
WAYS: dict[str, dict[str, Any]] = {
    NONE: {},
    UNCACHED: _EVERY,
    MISSES: {**_EVERY, "cache": {"records_max": RECORDS, "ttl_s": 0.001}},
    HITS: {**_EVERY, "cache": {"records_max": RECORDS, "ttl_s": 3600}},
}


def run(seconds: float, rounds: int = 3) -> list[Result]:
    """Measure all variants in turn over several rounds, and return the medians."""
    batches: dict[str, list[float]] = {way: [] for way in WAYS}
    singles: dict[str, list[float]] = {way: [] for way in WAYS}
    keys = [records.key(index) for index in range(RECORDS)]
    random.Random(1).shuffle(keys)
    gets = [records.gets_as_arrow(keys[start : start + BATCH]) for start in range(0, RECORDS, BATCH)]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        services = {way: stack.enter_context(_serving(Path(folder) / str(at), way)) for at, way in enumerate(WAYS)}
        for service in services.values():
            send_all(service.url, list(records.puts(RECORDS)))
            send_all(service.url, gets)
        for _ in range(rounds):
            for way, service in services.items():
                batches[way].append(_batches(service, gets, seconds))
                singles[way].append(
                    wrk.requests_per_second(service.url, _SINGLE, connections=CONNECTIONS, seconds=seconds)
                )
    return [
        *_group("batch get of 1,000, Arrow", "records", batches, 0.85),
        *_group(f"single GET, {CONNECTIONS} at once", "requests", singles, 0.7),
    ]


_SINGLE = GET % (records.TABLE, RECORDS - 1)


def _group(name: str, unit: str, rates: dict[str, list[float]], target: float) -> list[Result]:
    medians = [(way, median(found)) for way, found in rates.items()]
    return group(f"policies idle: {name}", unit, medians, {UNCACHED: target, MISSES: target, HITS: target})


def _batches(service: Service, gets: list[Request], seconds: float) -> float:
    return BATCH * requests_per_second(service.url, gets, connections=2, seconds=seconds)


def _serving(folder: Path, way: str) -> Any:
    folder.mkdir()
    file = folder / "stores.yaml"
    stores = {"s": {"kind": "rocksdb", "path": str(folder / "data")}}
    file.write_text(yaml.safe_dump({"stores": stores, "tables": {records.TABLE: {"store": "s", **WAYS[way]}}}))
    return running(folder, config=file)
