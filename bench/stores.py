"""Batches of 1,000 and single updates on a remote store: through the service and with direct calls of the driver.

Operations per CPU second are those of the measured process: the service, or the process with the driver. The store's
server and the clients share the machine's cores with it.
"""

import json
import random
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from examples.demo.service import Service

from . import records
from .cases import INCREMENT, Form, Op, batch, check, puts
from .drivers import Direct, DriverRate
from .load import requests_per_second, send_all, small_requests_per_second
from .report import Result
from .services import KINDS, Kind, serving
from .turns import Comparison, measured

RECORDS = 10_000
BATCH = 1000
AT_ONCE = (1, 4)
SINGLE_AT_ONCE = 32
DEADLINE_S = 60.0

PATCH = f"""
math.randomseed(os.time())
wrk.headers["Content-Type"] = "application/json"
request = function()
  local path = string.format("/v1/tables/{records.TABLE}/records/N%06d", math.random(0, {RECORDS - 1}))
  return wrk.format("PATCH", path, nil, '{json.dumps({"update": INCREMENT})}')
end
"""

TITLES: Mapping[Op, str] = {"get": "get of 1,000", "put": "put of 1,000", "update": "$inc of 1,000"}
ARROW, JSON = "service, Arrow", "service, JSON"
SECONDS_SHARE = 0.2
"""The share of `--seconds` for each measurement, because there are many."""


def run(kinds: Sequence[str], seconds: float, rounds: int) -> list[Result]:
    """Measure the kinds of store, all of them by default, and return the medians."""
    return [result for kind in kinds or KINDS for result in _run(KINDS[kind], seconds * SECONDS_SHARE, rounds)]


def _run(kind: Kind, seconds: float, rounds: int) -> list[Result]:
    with tempfile.TemporaryDirectory() as name, kind.server(Path(name)) as where:
        tables = {records.TABLE: {"deadline_s": DEADLINE_S}}
        with (
            serving(Path(name) / "service", kind.entry(where), tables) as service,
            Direct(kind.drivers, where) as direct,
        ):
            return measured([*_comparisons(kind, service, direct, seconds)], rounds)


def _comparisons(kind: Kind, service: Service, direct: Direct, seconds: float) -> Iterator[Comparison]:
    keys = [records.key(index) for index in range(RECORDS)]
    random.Random(1).shuffle(keys)
    batches = [keys[start : start + BATCH] for start in range(0, RECORDS, BATCH)]
    send_all(service.url, puts(RECORDS))
    direct.fill(batches)
    pid, table = service.process.pid, f"{kind.title}; ratios are to {next(iter(kind.drivers))} without the service"
    for op, title in TITLES.items():
        rates = direct.rates(op, batches)
        rates |= {ARROW: _batches(service, op, batches, "Arrow"), JSON: _batches(service, op, batches, "JSON")}
        for at_once in AT_ONCE:
            ways = {name: partial(rate, at_once, seconds) for name, rate in rates.items()}
            ratios_min = {ARROW: kind.get_target} if op == "get" else {}
            services = {ARROW: pid, JSON: pid}
            yield Comparison(f"{title}, {at_once} at once", "records", ways, ratios_min, services, table)
    baseline, driver = next(iter(direct.rates("update", [[key] for key in keys]).items()))
    ways = {baseline: partial(driver, SINGLE_AT_ONCE, seconds), JSON: partial(_single_updates, service, seconds)}
    yield Comparison(f"$inc of 1, {SINGLE_AT_ONCE} at once", "records", ways, {}, {JSON: pid}, table)


def _batches(service: Service, op: Op, batches: Sequence[Sequence[str]], form: Form) -> DriverRate:
    requests = [batch(op, keys, form=form) for keys in batches]
    check(service.url, requests[0], BATCH)

    def rate(at_once: int, seconds: float) -> float:
        return BATCH * requests_per_second(service.url, requests, connections=at_once, seconds=seconds)

    return rate


def _single_updates(service: Service, seconds: float) -> float:
    return small_requests_per_second(service.url, PATCH, connections=SINGLE_AT_ONCE, seconds=seconds)
