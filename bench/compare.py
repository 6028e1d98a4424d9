"""Single requests and batches of 1,000: the service, and Webdis and redis-py on the same Redis.

The service also reads and writes an embedded RocksDB table, compared with redis-py on Redis.

All variants are measured in turn, several times over. They read and write as many records of the same size. Dapr is not
measured, because its runtime is in no package registry.
"""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
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
from .direct import Direct, get, increment, put
from .drivers import TABLE, RedisPy
from .load import Request, requests_per_second, send_all
from .report import Result, group

RECORDS = 10_000
BATCH = 1000
SINGLE_AT_ONCE = 32
BATCHES_AT_ONCE = 4
INVALID_MAX = 3
SERVICE, WEBDIS, DRIVER = "Tableside", "webdis", "redis-py"
EMBEDDED = "embedded"
"""The table in RocksDB."""

KEYS = [records.key(index) for index in range(RECORDS)]
BATCHES = [KEYS[start : start + BATCH] for start in range(0, RECORDS, BATCH)]

Rate: TypeAlias = Callable[[float], float]
"""Measures requests or records per second, for a duration in seconds."""

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
    with tempfile.TemporaryDirectory() as name, redis(Path(name)) as url, webdis(Path(name), url) as other:
        config = _config(Path(name), url)
        with running(Path(name), config=config) as service, Direct({DRIVER: RedisPy}, url) as direct:
            send_all(service.url, [*records.puts(RECORDS), *records.puts(RECORDS, table=EMBEDDED)])
            direct.fill(BATCHES)
            comparisons = [*_singles(service, other), *_batches(service, other, direct)]
            for _ in range(rounds):
                for comparison in comparisons:
                    comparison.measure(seconds)
    return [result for comparison in comparisons for result in comparison.results()]


def _config(folder: Path, url: str) -> Path:
    file = folder / "stores.yaml"
    stores = {"redis": {"kind": "redis", "url": url}, "rocksdb": {"kind": "rocksdb", "path": str(folder / "records")}}
    tables = {records.TABLE: {"store": "redis", "create": True}, EMBEDDED: {"store": "rocksdb", "create": True}}
    file.write_text(yaml.safe_dump({"stores": stores, "tables": tables}))
    return file


def _singles(service: Service, other: str) -> list[Comparison]:
    path = f"/v1/tables/{records.TABLE}/records/"
    read = _single(service.url, "GET", path)
    patch = _single(service.url, "PATCH", path, '\'{"update":{"$inc":{"seats":1}}}\'')
    gets = {WEBDIS: _single(other, "GET", f"/GET/{TABLE}:"), SERVICE: read}
    return [
        Comparison("single GET", "requests", gets, {SERVICE: 0.35}),
        Comparison("single PATCH", "requests", {f"{SERVICE}'s GET": read, SERVICE: patch}, {SERVICE: 0.8}),
    ]


def _batches(service: Service, other: str, direct: Direct) -> list[Comparison]:
    mgets = [
        Request("POST", "/", "/".join(["MGET", *(f"{TABLE}:{key}" for key in batch)]).encode()) for batch in BATCHES
    ]
    gets, puts, increments = (_direct(direct.rates(verb, BATCHES)[DRIVER]) for verb in (get, put, increment))

    def compared(
        title: str, others: Mapping[str, Rate], form: Callable[[Sequence[str]], Request], target: float
    ) -> Comparison:
        service_rate = _batch(service.url, [form(batch) for batch in BATCHES])
        return Comparison(title, "records", {**others, SERVICE: service_rate}, {SERVICE: target})

    of_webdis = _repeated(_batch(other, mgets))
    return [
        compared("batch get", {DRIVER: gets, WEBDIS: of_webdis}, records.gets_as_arrow, 0.7),
        compared("batch get, op column", {DRIVER: gets}, records.gets_with_op_column, 0.7),
        compared("batch get, JSON", {DRIVER: gets}, records.gets_as_json, 0.4),
        compared("batch put", {DRIVER: puts}, records.puts_as_arrow, 1.2),
        compared("batch $inc", {DRIVER: increments}, records.increments_as_arrow, 1.0),
        compared("RocksDB, batch get", {DRIVER: gets}, partial(records.gets_as_arrow, table=EMBEDDED), 0.6),
        compared("RocksDB, batch put", {DRIVER: puts}, partial(records.puts_as_arrow, table=EMBEDDED), 1.0),
    ]


def _single(url: str, method: str, path: str, body: str = "nil") -> Rate:
    script = SINGLE % (method, path, RECORDS - 1, body)
    return lambda seconds: wrk.requests_per_second(url, script, connections=SINGLE_AT_ONCE, seconds=seconds)


def _batch(url: str, requests: Sequence[Request]) -> Rate:
    return lambda seconds: BATCH * requests_per_second(url, requests, connections=BATCHES_AT_ONCE, seconds=seconds)


def _repeated(rate: Rate) -> Rate:
    """Measure again after an invalid response: Webdis sometimes sends a large one without its head."""

    def measured(seconds: float) -> float:
        for _ in range(INVALID_MAX):
            with suppress(HTTPException):
                return rate(seconds)
        return rate(seconds)

    return measured


def _direct(rate: Callable[[int, float], float]) -> Rate:
    return lambda seconds: rate(BATCHES_AT_ONCE, seconds)
