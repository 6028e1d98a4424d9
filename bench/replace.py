"""Batches of 1,000 puts into a generation that loads, beside the same puts into an ordinary empty table."""

import json
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from examples.demo.service import Service

from servers.redis import redis

from . import records
from .cases import Case, batch
from .load import Request, answer, send_all
from .report import Result
from .services import KINDS, serving
from .turns import Comparison, Rate, measured, rates

CASE = Case("200 bytes", key_name="tailnum", value_bytes=200)
RECORDS = 50_000
ROWS = 1000
AT_ONCE = (1, 4)

RATIOS_MIN = {"Redis": 0.95, "RocksDB": 1.0, "PostgreSQL, fsync on": 1.3}
"""The lowest acceptable ratios over one connection.

A load into RocksDB saves the sync of each batch. The ratio is 1.1 where a sync takes 0.3 ms, 1.3 where it takes 2 ms,
and 2.1 where it takes 5 ms. Redis executes the same commands for both, so its ratio only differs by noise.
"""

GENERATIONS = f"/v1/tables/{records.TABLE}/generations"


def run(rounds: int) -> list[Result]:
    """Measure loads of each store over one connection and several. The ratios are to ordinary puts."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        comparisons: list[Comparison] = []
        for store in RATIOS_MIN:
            service = stack.enter_context(_service(folder, store))
            comparisons += [_comparison(service, store, connections) for connections in AT_ONCE]
        return measured(comparisons, rounds, warm=True)


@contextmanager
def _service(folder: Path, store: str) -> Iterator[Service]:
    with ExitStack() as stack:
        match store:
            case "RocksDB":
                entry = {"kind": "rocksdb", "path": "records"}
            case "Redis":
                entry = {"kind": "redis", "url": stack.enter_context(redis(folder))}
            case _:
                kind = KINDS["postgres"]
                entry = dict(kind.entry(stack.enter_context(kind.server(folder))))
        tables = {records.TABLE: {**CASE.settings, "generations": True, "deadline_s": 30}}
        yield stack.enter_context(serving(folder / entry["kind"], entry, tables))


def _comparison(service: Service, store: str, connections: int) -> Comparison:
    url, keys = service.url, [records.key(index) for index in range(RECORDS)]
    requests = [batch("put", keys[at : at + ROWS], records.TABLE, CASE) for at in range(0, RECORDS, ROWS)]
    ways: dict[str, Rate] = {
        "put": partial(_rate, url, requests, connections, active=True),
        "load": partial(_rate, url, requests, connections, active=False),
    }
    ratios_min = {"load": RATIOS_MIN[store]} if connections == 1 else {}
    return Comparison(f"{store}, {connections} at once", "records", ways, ratios_min)


def _rate(url: str, requests: list[Request], connections: int, *, active: bool) -> float:
    """Send the puts to a new generation: by the table's name if it is `active`, else by its number."""
    number = json.loads(answer(url, Request("POST", GENERATIONS)))["generation"]
    if active:
        answer(url, Request("POST", f"{GENERATIONS}/{number}/activate"))
    else:
        named = f"/{records.TABLE}@{number}/"
        requests = [replace(one, path=one.path.replace(f"/{records.TABLE}/", named)) for one in requests]
    [rate] = rates({"": partial(_send, url, requests, connections)}, RECORDS).values()
    found = rate()
    if not active:
        answer(url, Request("DELETE", f"{GENERATIONS}/{number}"))
    return found


def _send(url: str, requests: list[Request], connections: int) -> None:
    send: Callable[[list[Request]], None] = partial(send_all, url)
    with ThreadPoolExecutor(connections) as threads:
        list(threads.map(send, [requests[at::connections] for at in range(connections)]))
