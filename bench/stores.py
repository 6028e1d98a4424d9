"""Batches of 1,000 and single updates on a remote store: through the service and with direct calls of the driver.

Operations per CPU second are those of the measured process: the service, or the process with the driver. The store's
server and the clients share the machine's cores with it. Their CPU use is shown.
"""

import json
import random
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

from examples.demo.service import Service

from . import records, wrk
from .cases import INCREMENT, Form, Op, batch, check, puts
from .cores import Cores, Spent
from .direct import Direct, Rate
from .kinds import KINDS, Kind
from .load import Request, requests_per_second, send_all
from .report import PerCore, Result, group
from .services import serving
from .turns import hand_over

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

SECONDS_SHARE = 0.2
"""The share of `--seconds` for each measurement, because there are many."""


@dataclass(frozen=True)
class Sample:
    """The result of one measurement."""

    per_second: float
    cores: Cores

    @property
    def per_cpu_second(self) -> float:
        """Return the rate per CPU second of the measured process."""
        return self.per_second / self.cores.own

    @property
    def per_cpu_second_of_all(self) -> float:
        """Return the rate per CPU second of all processes, including the store's server and the clients."""
        return self.per_second / self.cores.all


@dataclass(frozen=True)
class Way:
    """A way to do a task: in this process (`direct`) or through the service."""

    name: str
    rate: Rate
    direct: bool
    check: Callable[[], None] = lambda: None
    samples: dict[int, list[Sample]] = field(default_factory=dict)

    def measure(self, at_once: int, seconds: float, service: Service) -> None:
        """Measure for a duration and store the sample."""
        before = Spent.now(service.process.pid)
        per_second = self.rate(at_once, seconds)
        cores = Spent.now(service.process.pid).cores_since(before, direct=self.direct)
        self.samples.setdefault(at_once, []).append(Sample(per_second, cores))
        self.check()
        hand_over()


@dataclass(frozen=True)
class Task:
    """A task with its variants, the baseline first, and the numbers of concurrent requests."""

    title: str
    unit: str
    ways: Sequence[Way]
    at_once: Sequence[int]
    targets: Mapping[str, float] = field(default_factory=dict)

    def results(self, table: str) -> list[Result]:
        """Return the medians, per second and per CPU second, for each number of concurrent requests."""
        return [result for at_once in self.at_once for result in self._results(table, at_once)]

    def _results(self, table: str, at_once: int) -> list[Result]:
        samples = {way.name: way.samples[at_once] for way in self.ways}
        rates = {way: median(sample.per_second for sample in taken) for way, taken in samples.items()}
        per_core = {way: median(sample.per_cpu_second for sample in taken) for way, taken in samples.items()}
        of_all = {way: median(sample.per_cpu_second_of_all for sample in taken) for way, taken in samples.items()}
        first = self.ways[0].name
        return [
            replace(
                result,
                table=table,
                per_core=PerCore(
                    per_core[result.way],
                    per_core[result.way] / per_core[first],
                    of_all[result.way] / of_all[first],
                    self.targets.get(result.way),
                    Cores.median([sample.cores for sample in samples[result.way]]),
                ),
            )
            for result in group(f"{self.title}, {at_once} at once", self.unit, [*rates.items()], {})
        ]


def run(kinds: Sequence[str], seconds: float, rounds: int) -> list[Result]:
    """Measure the kinds of store, all of them by default, and return the medians."""
    return [result for kind in kinds or KINDS for result in _run(KINDS[kind], seconds * SECONDS_SHARE, rounds)]


def _run(chosen: Kind, seconds: float, rounds: int) -> list[Result]:
    """Measure all variants in turn over several rounds."""
    with tempfile.TemporaryDirectory() as name, chosen.server(Path(name)) as where:
        tables = {records.TABLE: {"deadline_s": DEADLINE_S}}
        with (
            serving(Path(name) / "service", chosen.entry(where), tables) as service,
            Direct(chosen.drivers, where) as direct,
        ):
            tasks = _tasks(chosen, service, direct)
            for _ in range(rounds):
                for task in tasks:
                    for at_once in task.at_once:
                        for way in task.ways:
                            way.measure(at_once, seconds, service)
    table = f"{chosen.title}; ratios are to {next(iter(chosen.drivers))} without the service"
    return [result for task in tasks for result in task.results(table)]


def _tasks(kind: Kind, service: Service, direct: Direct) -> list[Task]:
    keys = [records.key(index) for index in range(RECORDS)]
    random.Random(1).shuffle(keys)
    batches = [keys[start : start + BATCH] for start in range(0, RECORDS, BATCH)]
    send_all(service.url, puts(RECORDS))
    direct.fill(batches)
    kinds: list[tuple[Op, str, Mapping[str, float]]] = [
        ("get", "get of 1,000", {"service, Arrow": kind.get_target}),
        ("put", "put of 1,000", {}),
        ("update", "$inc of 1,000", {}),
    ]
    forms: Sequence[Form] = ("Arrow", "JSON")
    tasks = []
    for op, title, targets in kinds:
        service_ways = [
            _through(service, f"service, {form}", [batch(op, keys, form=form) for keys in batches]) for form in forms
        ]
        tasks.append(Task(title, "records", [*_direct(direct.rates(op, batches)), *service_ways], AT_ONCE, targets))
    baseline, *_ = _direct(direct.rates("update", [[key] for key in keys]))
    return [*tasks, Task("$inc of 1", "records", [baseline, _patched(service)], (SINGLE_AT_ONCE,))]


def _direct(rates: Mapping[str, Rate]) -> list[Way]:
    return [Way(name, rate, direct=True) for name, rate in rates.items()]


def _through(service: Service, name: str, requests: Sequence[Request]) -> Way:
    def rate(at_once: int, seconds: float) -> float:
        return BATCH * requests_per_second(service.url, requests, connections=at_once, seconds=seconds)

    return Way(name, rate, direct=False, check=lambda: check(service.url, requests[0], BATCH))


def _patched(service: Service) -> Way:
    def rate(at_once: int, seconds: float) -> float:
        return wrk.requests_per_second(service.url, PATCH, connections=at_once, seconds=seconds)

    return Way("service, JSON", rate, direct=False)
