"""Batches of 1,000 and 5,000 puts, gets and updates on embedded stores and Redis, with the options that callers use.

The ratio of a case is to the plainest batch of the same store. Further groups compare the plainest batches of the
stores.
"""

import random
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from examples.demo.service import Service

from servers.redis import redis

from . import records
from .cases import CASES, PLAIN, Case, Form, Op, batch, check, puts
from .load import Request, requests_per_second, send_all
from .report import Result, group
from .services import serving, tables_of
from .turns import Comparison, Rate, measured

RECORDS = 20_000
CONNECTIONS = 4
TITLE = "batches; ratios are to the plainest batch of the same store"
SECONDS_SHARE = 0.2
"""The share of `--seconds` for each measurement, because there are many."""

STORES = {"Redis": "redis", "RocksDB": "rocksdb", "memory": "memory"}
"""The names of the stores, and their kinds."""

TO_REDIS: Mapping[Op, Mapping[str, float]] = {"get": {"RocksDB": 0.6, "memory": 1.0}, "put": {"memory": 1.0}}
"""The lowest acceptable ratios of the plainest batches to those of Redis."""


@dataclass(frozen=True)
class Shape:
    """The form and size of a batch of one operation. The measured tables of all shapes have the same records."""

    op: Op
    form: Form
    rows: int

    def __str__(self) -> str:
        return f"{self.op} of {self.rows:,}, {self.form}"

    @property
    def cases(self) -> list[Case]:
        """Return the measured cases. In JSON, each operation has a member `op`."""
        return [case for case in CASES[self.op] if self.form == "Arrow" or not case.op_column]

    def requests(self, case: Case) -> list[Request]:
        """Return requests for all records, in random order."""
        keys = [records.key(index) for index in range(RECORDS)]
        random.Random(1).shuffle(keys)
        parts = [keys[start : start + self.rows] for start in range(0, RECORDS, self.rows)]
        return [batch(self.op, part, case.table, case, self.form) for part in parts]


SHAPES = [
    shape for op in CASES for shape in (Shape(op, "Arrow", 1000), Shape(op, "Arrow", 5000), Shape(op, "JSON", 1000))
]


def run(seconds: float, rounds: int, matching: str = "") -> list[Result]:
    """Measure the comparisons whose titles, such as `Redis, put of 1,000, Arrow`, contain `matching`."""
    chosen = {
        store: shapes for store in STORES if (shapes := [shape for shape in SHAPES if matching in f"{store}, {shape}"])
    }
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        redis_url = stack.enter_context(redis(folder))
        comparisons: list[Comparison] = []
        for store, shapes in chosen.items():
            cases = {case.table: case for shape in shapes for case in shape.cases}
            service = stack.enter_context(service_of(folder, store, redis_url, cases.values()))
            comparisons += [_comparison(service, store, shape, seconds * SECONDS_SHARE) for shape in shapes]
        results = measured(comparisons, rounds)
    return [*results, *_between_stores(results)]


@contextmanager
def service_of(folder: Path, store: str, redis_url: str, cases: Iterable[Case]) -> Iterator[Service]:
    """Run a service with one table for each case."""
    kind = STORES[store]
    settings = {"redis": {"url": redis_url}, "rocksdb": {"path": "records"}, "memory": {}}[kind]
    with serving(folder / kind, {"kind": kind, **settings}, tables_of(cases)) as service:
        for case in cases:
            send_all(service.url, puts(RECORDS, case.table, case))
        yield service


def _comparison(service: Service, store: str, shape: Shape, seconds: float) -> Comparison:
    ways: dict[str, Rate] = {}
    for case in shape.cases:
        requests = shape.requests(case)
        check(service.url, requests[0], shape.rows, case.failures(shape.op, shape.rows))
        ways[case.name] = partial(rate, service.url, requests, shape.rows, seconds)
    ratios_min = {case.name: case.ratio_min for case in shape.cases if case.ratio_min is not None}
    services = dict.fromkeys(ways, service.process.pid)
    return Comparison(f"{store}, {shape}", "records", ways, ratios_min, services, TITLE)


def rate(url: str, requests: Sequence[Request], rows: int, seconds: float) -> float:
    """Return the number of operations per second."""
    return rows * requests_per_second(url, requests, connections=CONNECTIONS, seconds=seconds)


def _between_stores(results: Sequence[Result]) -> Iterator[Result]:
    """Compare the plainest batches of the stores, from rates that were measured already."""
    rates = {result.group: result.per_second for result in results if result.way == PLAIN.name}
    for shape in SHAPES:
        titles = {store: f"{store}, {shape}" for store in STORES}
        of_stores = [(store, rates[title]) for store, title in titles.items() if title in rates]
        if len(of_stores) > 1:
            yield from group(f"stores, {shape}", "records", of_stores, TO_REDIS.get(shape.op, {}))
