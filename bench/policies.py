"""The cost of idle policies: RocksDB with all policies and with none."""

import random
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from examples.demo.service import Service

from . import records
from .cases import batch, puts
from .load import Request, requests_per_second, send_all, small_requests_per_second
from .report import Result
from .services import serving
from .single import GET
from .turns import Comparison, Rate, measured

RECORDS = 100_000
BATCH = 1000
CONNECTIONS = 32

NONE, UNCACHED = "no policies", "all but a cache"
MISSES, HITS = "all, and the cache has none of it", "all, and the cache has all of it"

ROCKSDB = {"kind": "rocksdb", "path": "records"}
_DIRECTION = {"rate_per_s": 1e9, "timeout_s": 10, "attempts_max": 3}
_EVERY: dict[str, Any] = {
    "read": _DIRECTION,
    "write": _DIRECTION,
    "concurrency_max": 1000,
    "batch": {"operations_max": 1000},
}
WAYS: dict[str, dict[str, Any]] = {
    NONE: {},
    UNCACHED: _EVERY,
    MISSES: {**_EVERY, "cache": {"records_max": RECORDS, "ttl_s": 0.001}},
    HITS: {**_EVERY, "cache": {"records_max": RECORDS, "ttl_s": 3600}},
}


def run(seconds: float, rounds: int = 3) -> list[Result]:
    """Measure all variants in turn over several rounds, and return the medians."""
    keys = [records.key(index) for index in range(RECORDS)]
    random.Random(1).shuffle(keys)
    gets = [batch("get", keys[start : start + BATCH]) for start in range(0, RECORDS, BATCH)]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        services = {
            way: stack.enter_context(serving(Path(folder) / way, ROCKSDB, {records.TABLE: policies}))
            for way, policies in WAYS.items()
        }
        for service in services.values():
            send_all(service.url, puts(RECORDS))
            send_all(service.url, gets)
        batches = {way: partial(_batches, service, gets, seconds) for way, service in services.items()}
        singles = {way: partial(_singles, service, seconds) for way, service in services.items()}
        comparisons = [
            _compared("batch get of 1,000, Arrow", "records", batches, 0.85),
            _compared(f"single GET, {CONNECTIONS} at once", "requests", singles, 0.7),
        ]
        return measured(comparisons, rounds)


def _compared(name: str, unit: str, ways: Mapping[str, Rate], ratio_min: float) -> Comparison:
    return Comparison(f"policies idle: {name}", unit, ways, dict.fromkeys((UNCACHED, MISSES, HITS), ratio_min))


def _singles(service: Service, seconds: float) -> float:
    script = GET % (records.TABLE, RECORDS - 1)
    return small_requests_per_second(service.url, script, connections=CONNECTIONS, seconds=seconds)


def _batches(service: Service, gets: list[Request], seconds: float) -> float:
    return BATCH * requests_per_second(service.url, gets, connections=2, seconds=seconds)
