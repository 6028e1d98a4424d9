"""Single requests and batches of 1,000: the service, and Webdis and redis-py on the same Redis.

The service runs with one worker, and with two. With one, it also reads and writes an embedded RocksDB table, compared
with redis-py on Redis.

All variants are measured in turn, several times over. They read and write as many records of the same size. Dapr is not
measured, because its runtime is in no package registry.
"""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPException
from pathlib import Path
from statistics import median
from typing import TypeAlias

import yaml
from examples.demo.service import Service, running

from servers.redis import redis
from servers.webdis import webdis

from . import records, wrk
from .direct import Direct, Verb, get, increment, put
from .drivers import TABLE, RedisPy
from .load import Request, requests_per_second, send_all
from .report import Result, group

RECORDS = 10_000
BATCH = 1000
SINGLE_AT_ONCE = 32
BATCHES_AT_ONCE = 4
INVALID_MAX = 3
WORKERS = 2
SERVICE, WEBDIS, DRIVER = "Tableside", "webdis", "redis-py"
SHARED_SERVICE = f"Tableside, {WORKERS} workers"
FIGURE_TITLE = "Requests and records per second of Tableside and of others, as ratios"
EMBEDDED = "embedded"
"""The table in RocksDB."""

KEYS = [records.key(index) for index in range(RECORDS)]
BATCHES = [KEYS[start : start + BATCH] for start in range(0, RECORDS, BATCH)]

Rate: TypeAlias = Callable[[float], float]
"""Measures requests or records per second, for a duration in seconds."""

Form: TypeAlias = Callable[[Sequence[str]], Request]
"""Returns the batch request for some keys."""

_TABLES: Mapping[str, Mapping[str, object]] = {records.TABLE: {"store": "redis", "create": True}}

SINGLE = """
math.randomseed(os.time())
wrk.headers["Content-Type"] = "application/json"
request = function()
  return wrk.format("%s", string.format("%sN%%06d", math.random(0, %d)), nil, %s)
end
"""


@dataclass(frozen=True)
class Comparison:
    """Variants of one task, the baseline first. `targets` are ratios to the baseline."""

    title: str
    unit: str
    ways: Mapping[str, Rate]
    targets: Mapping[str, float]
    rates: dict[str, list[float]] = field(default_factory=dict)

    def measure(self, seconds: float) -> None:
        """Measure each variant once."""
        for way, rate in self.ways.items():
            self.rates.setdefault(way, []).append(rate(seconds))

    def results(self) -> list[Result]:
        """Return the medians."""
        return group(self.title, self.unit, [(way, median(rates)) for way, rates in self.rates.items()], self.targets)


def run(seconds: float, rounds: int = 5) -> list[Result]:
    """Measure all variants in turn over several rounds, and return the medians."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url = stack.enter_context(redis(folder))
        other = stack.enter_context(webdis(folder, url))
        service = stack.enter_context(running(folder, config=_config(folder, url)))
        shared_service = stack.enter_context(_shared_service(folder, url))
        direct = stack.enter_context(Direct({DRIVER: RedisPy}, url))
        send_all(service.url, [*records.puts(RECORDS), *records.puts(RECORDS, table=EMBEDDED)])
        direct.fill(BATCHES)
        services = {SERVICE: service.url, SHARED_SERVICE: shared_service.url}
        comparisons = [*_singles(services, other), *_batches(services, other, direct), *_embedded(service.url, direct)]
        for _ in range(rounds):
            for comparison in comparisons:
                comparison.measure(seconds)
    return [result for comparison in comparisons for result in comparison.results()]


def _config(folder: Path, url: str) -> Path:
    stores = {"redis": _redis(url), "rocksdb": {"kind": "rocksdb", "path": str(folder / "records")}}
    tables = {**_TABLES, EMBEDDED: {"store": "rocksdb", "create": True}}
    return _written(folder / "stores.yaml", {"stores": stores, "tables": tables})


def _shared_service(folder: Path, url: str) -> AbstractContextManager[Service]:
    """Run a service with several workers and the same records in Redis."""
    config = _written(folder / "shared.yaml", {"stores": {"redis": _redis(url)}, "tables": _TABLES})
    (own_folder := folder / "shared").mkdir()
    return running(own_folder, config=config, workers=WORKERS)


def _redis(url: str) -> dict[str, str]:
    return {"kind": "redis", "url": url}


def _written(file: Path, config: Mapping[str, object]) -> Path:
    file.write_text(yaml.safe_dump(config))
    return file


def _singles(services: Mapping[str, str], other: str) -> list[Comparison]:
    path = f"/v1/tables/{records.TABLE}/records/"
    reads = {name: _single(url, "GET", path) for name, url in services.items()}
    comparisons = [_compared("single GET", "requests", {WEBDIS: _single(other, "GET", f"/GET/{TABLE}:")}, reads, 0.35)]
    for name, url in services.items():
        patch = _single(url, "PATCH", path, '\'{"update":{"$inc":{"seats":1}}}\'')
        title = "single PATCH" if name == SERVICE else f"single PATCH, {WORKERS} workers"
        comparisons.append(_compared(title, "requests", {f"{name}: GET": reads[name]}, {name: patch}, 0.8))
    return comparisons


def _batches(services: Mapping[str, str], other: str, direct: Direct) -> list[Comparison]:
    mgets = [
        Request("POST", "/", "/".join(["MGET", *(f"{TABLE}:{key}" for key in batch)]).encode()) for batch in BATCHES
    ]
    gets, puts, increments = (_direct(direct, verb) for verb in (get, put, increment))

    def compared(title: str, others: Mapping[str, Rate], form: Form, target: float) -> Comparison:
        return _compared(title, "records", others, {name: _batch(url, form) for name, url in services.items()}, target)

    of_webdis = _repeated(_rate(other, mgets))
    return [
        compared("batch get", {DRIVER: gets, WEBDIS: of_webdis}, records.gets_as_arrow, 0.7),
        compared("batch get, op column", {DRIVER: gets}, records.gets_with_op_column, 0.7),
        compared("batch get, JSON", {DRIVER: gets}, records.gets_as_json, 0.4),
        compared("batch put", {DRIVER: puts}, records.puts_as_arrow, 1.2),
        compared("batch $inc", {DRIVER: increments}, records.increments_as_arrow, 1.0),
    ]


def _embedded(url: str, direct: Direct) -> list[Comparison]:
    reads = _batch(url, partial(records.gets_as_arrow, table=EMBEDDED))
    writes = _batch(url, partial(records.puts_as_arrow, table=EMBEDDED))
    return [
        _compared("RocksDB, batch get", "records", {DRIVER: _direct(direct, get)}, {SERVICE: reads}, 0.6),
        _compared("RocksDB, batch put", "records", {DRIVER: _direct(direct, put)}, {SERVICE: writes}, 1.0),
    ]


def _compared(title: str, unit: str, others: Mapping[str, Rate], ours: Mapping[str, Rate], target: float) -> Comparison:
    return Comparison(title, unit, {**others, **ours}, dict.fromkeys(ours, target))


def _single(url: str, method: str, path: str, body: str = "nil") -> Rate:
    script = SINGLE % (method, path, RECORDS - 1, body)
    return lambda seconds: wrk.requests_per_second(url, script, connections=SINGLE_AT_ONCE, seconds=seconds)


def _batch(url: str, form: Form) -> Rate:
    return _rate(url, [form(batch) for batch in BATCHES])


def _rate(url: str, requests: Sequence[Request]) -> Rate:
    return lambda seconds: BATCH * requests_per_second(url, requests, connections=BATCHES_AT_ONCE, seconds=seconds)


def _repeated(rate: Rate) -> Rate:
    """Measure again after an invalid response: Webdis sometimes sends a large one without its head."""

    def measured(seconds: float) -> float:
        for _ in range(INVALID_MAX):
            with suppress(HTTPException):
                return rate(seconds)
        return rate(seconds)

    return measured


def _direct(direct: Direct, verb: Verb) -> Rate:
    rate = direct.rates(verb, BATCHES)[DRIVER]
    return lambda seconds: rate(BATCHES_AT_ONCE, seconds)
