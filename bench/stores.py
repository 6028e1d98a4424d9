"""Batches of 1,000 and single updates on a remote store: through the service, against its driver called directly.

Operations per CPU second are those of the process that is compared, service or driver: what one core does for it. The
store's server and the clients that send the requests take turns with it on the machine's cores, and are shown.
"""

import asyncio
import io
import json
import random
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Self, TypeAlias

import pyarrow as pa
import uvloop
import yaml
from demo.service import Service, running

from . import records, wrk
from .cores import Cores, Spent
from .drivers import Batch, Driver
from .kinds import KINDS, Kind
from .load import Request, answer, requests_per_second, send_all
from .report import PerCore, Result, group

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
  return wrk.format("PATCH", path, nil, '{json.dumps({"update": records.INCREMENT})}')
end
"""

Rate: TypeAlias = Callable[[int, float], float]
"""So many requests at once, for so many seconds, give so many operations per second."""


@dataclass(frozen=True)
class Sample:
    """What was measured once."""

    per_second: float
    cores: Cores

    @property
    def per_cpu_second(self) -> float:
        """Return the same for each second of CPU that the process took which is compared."""
        return self.per_second / self.cores.own


@dataclass(frozen=True)
class Way:
    """A way to do a task: in this process (`direct`) or through the service."""

    name: str
    rate: Rate
    direct: bool
    check: Callable[[], None] = lambda: None
    samples: dict[int, list[Sample]] = field(default_factory=dict)

    def measure(self, at_once: int, seconds: float, service: Service) -> None:
        """Do it for so long and keep what was measured."""
        before = Spent.now(service.process.pid)
        per_second = self.rate(at_once, seconds)
        cores = Spent.now(service.process.pid).cores_since(before, direct=self.direct)
        self.samples.setdefault(at_once, []).append(Sample(per_second, cores))
        self.check()


@dataclass(frozen=True)
class Task:
    """What is done, the baseline first, and how many at once."""

    title: str
    unit: str
    ways: Sequence[Way]
    at_once: Sequence[int]
    targets: Mapping[str, float] = field(default_factory=dict)

    def results(self, table: str) -> list[Result]:
        """Return the medians, per second and per CPU second, for each number at once."""
        return [result for at_once in self.at_once for result in self._results(table, at_once)]

    def _results(self, table: str, at_once: int) -> list[Result]:
        samples = {way.name: way.samples[at_once] for way in self.ways}
        rates = {way: median(sample.per_second for sample in taken) for way, taken in samples.items()}
        per_core = {way: median(sample.per_cpu_second for sample in taken) for way, taken in samples.items()}
        baseline = per_core[self.ways[0].name]
        return [
            replace(
                result,
                table=table,
                per_core=PerCore(
                    per_core[result.way],
                    per_core[result.way] / baseline,
                    self.targets.get(result.way),
                    Cores.median([sample.cores for sample in samples[result.way]]),
                ),
            )
            for result in group(f"{self.title}, {at_once} at once", self.unit, [*rates.items()], {})
        ]


def run(kind: str, seconds: float, rounds: int = 3) -> list[Result]:
    """Measure every way in turn, several times over, and return the medians."""
    chosen = KINDS[kind]
    with tempfile.TemporaryDirectory() as name, chosen.server(Path(name)) as where:
        config = _config(Path(name), chosen, where)
        with running(Path(name), config=config) as service, _Direct(chosen, where) as direct:
            tasks = _tasks(chosen, service, direct)
            for _ in range(rounds):
                for task in tasks:
                    for at_once in task.at_once:
                        for way in task.ways:
                            way.measure(at_once, seconds, service)
    table = f"{chosen.title}; ratios are to {next(iter(chosen.drivers))} without the service"
    return [result for task in tasks for result in task.results(table)]


def _config(folder: Path, kind: Kind, where: str) -> Path:
    table = {"store": "s", "create": True, "deadline_s": DEADLINE_S}
    file = folder / "stores.yaml"
    file.write_text(yaml.safe_dump({"stores": {"s": {**kind.entry(where)}}, "tables": {records.TABLE: table}}))
    return file


def _tasks(kind: Kind, service: Service, direct: "_Direct") -> list[Task]:
    keys = [records.key(index) for index in range(RECORDS)]
    random.Random(1).shuffle(keys)
    batches = [keys[start : start + BATCH] for start in range(0, RECORDS, BATCH)]
    send_all(service.url, list(records.puts(RECORDS)))
    direct.fill(batches)
    verbs: list[tuple[str, Verb, Form, Form, Mapping[str, float]]] = [
        ("get of 1,000", _get, records.gets_as_arrow, records.gets_as_json, {"service, Arrow": kind.get_target}),
        ("put of 1,000", _put, records.puts_as_arrow, records.puts_as_json, {}),
        ("$inc of 1,000", _increment, records.increments_as_arrow, records.increments_as_json, {}),
    ]
    tasks = []
    for title, verb, arrow, as_json, targets in verbs:
        service_ways = [
            _through(service, "service, Arrow", [arrow(batch) for batch in batches]),
            _through(service, "service, JSON", [as_json(batch) for batch in batches]),
        ]
        tasks.append(Task(title, "records", [*direct.ways(verb, batches), *service_ways], AT_ONCE, targets))
    baseline, *_ = direct.ways(_increment, [[key] for key in keys])
    return [*tasks, Task("$inc of 1", "records", [baseline, _patched(service)], (SINGLE_AT_ONCE,))]


Verb: TypeAlias = Callable[[Driver, Batch], Awaitable[None]]
Form: TypeAlias = Callable[[Sequence[str]], Request]


async def _get(driver: Driver, batch: Batch) -> None:
    await driver.get(batch)


async def _put(driver: Driver, batch: Batch) -> None:
    await driver.put(batch)


async def _increment(driver: Driver, batch: Batch) -> None:
    await driver.increment(batch)


def _through(service: Service, name: str, requests: Sequence[Request]) -> Way:
    def rate(at_once: int, seconds: float) -> float:
        return BATCH * requests_per_second(service.url, requests, connections=at_once, seconds=seconds)

    return Way(name, rate, direct=False, check=lambda: _check(service, requests[0]))


def _patched(service: Service) -> Way:
    def rate(at_once: int, seconds: float) -> float:
        return wrk.requests_per_second(service.url, PATCH, connections=at_once, seconds=seconds)

    return Way("service, JSON", rate, direct=False)


def _check(service: Service, request: Request) -> None:
    """Raise if any operation of a batch fails: its status is not the answer's."""
    body = answer(service.url, request)
    if request.media_type == records.ARROW:
        statuses = pa.ipc.open_stream(io.BytesIO(body)).read_all()["status"].to_pylist()
    else:
        statuses = [result["status"] for result in json.loads(body)["results"]]
    assert len(statuses) == BATCH, len(statuses)
    assert max(statuses) < 300, max(statuses)


class _Direct:
    """The drivers, on an event loop of this process."""

    def __init__(self, kind: Kind, where: str) -> None:
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self._drivers = {name: self._runner.run(driver.open(where)) for name, driver in kind.drivers.items()}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for driver in self._drivers.values():
            self._runner.run(driver.close())
        self._runner.close()

    def fill(self, batches: Sequence[Sequence[str]]) -> None:
        """Write the records."""
        for driver in self._drivers.values():
            for batch in batches:
                self._runner.run(driver.put(driver.ready(batch)))

    def ways(self, verb: Verb, batches: Sequence[Sequence[str]]) -> list[Way]:
        """Return how each driver does it."""
        return [Way(name, self._rate(driver, verb, batches), direct=True) for name, driver in self._drivers.items()]

    def _rate(self, driver: Driver, verb: Verb, batches: Sequence[Sequence[str]]) -> Rate:
        ready, size = [driver.ready(batch) for batch in batches], len(batches[0])

        def rate(at_once: int, seconds: float) -> float:
            return size * self._runner.run(_repeated(driver, verb, ready, at_once, seconds))

        return rate


async def _repeated(driver: Driver, verb: Verb, batches: Sequence[Batch], at_once: int, seconds: float) -> float:
    """Return how many batches per second were done by so many coroutines."""
    started, count = time.perf_counter(), 0

    async def work(index: int) -> None:
        nonlocal count
        position = index * len(batches) // at_once
        while time.perf_counter() - started < seconds:
            await verb(driver, batches[position % len(batches)])
            position += 1
            count += 1

    async with asyncio.TaskGroup() as tasks:
        for index in range(at_once):
            tasks.create_task(work(index))
    return count / (time.perf_counter() - started)
