"""The effect of hostile requests on other callers: one request at a time, then many next to a normal caller.

The table lists the inputs of `tests/hostile`, the largest of each shape within the limits, worst first. A
request may block the event loop for at most 50 ms at a time. Its memory may be at most 8 times its size plus the limit
on responses. The longest turn of the loop is measured in CPU time, which other processes hardly affect.

The mixed load then sends such requests to a table over several connections, while another process sends single gets to
the same table at a fixed rate. Rounds without the load and with it alternate, so that disturbances affect all. In
further rounds the load goes to another service on the same machine, and to a table of the same store: no service can
delay gets less, because they compete for the processors and the store.
"""

import os
import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import psutil
from rich.console import Console
from rich.table import Table

from hostile.costs import Cost, Sent, Watched
from hostile.tables import INPUTS, REMOTE, STORE_INPUTS, Tables, table_of, tables as running
from servers.shared import servers

from .open_loop import Seen, offer, quantile
from .overload import CLIENT_CORE
from .report import WIDTH, Result, group

RULE_S = 0.05
SHOWN = 40
"""The number of inputs in the printed table."""

COLUMNS = (
    *("store", "input", "status", "s", "turn, CPU ms", "all threads", "MiB", "of request"),
    "breaks the rule",
)

DEALT = 24
"""The number of inputs that the mixed load sends."""

RATE_PER_S = 200.0
RECORDS = 1000
WITHOUT, ELSEWHERE, WITH = (
    "others alone",
    "others, hostile requests to another service",
    "others next to hostile requests",
)


@dataclass(frozen=True)
class Line:
    """One input with its cost."""

    table: str
    name: str
    cost: Cost

    @property
    def badness(self) -> float:
        """How much worse than the rule the input is, in its worst respect."""
        return max(
            _blocked_s(self.cost) / RULE_S, self.cost.memory_bytes / self.cost.allowed_bytes, self.cost.seconds / 10
        )


def run(tables: Sequence[str], matching: str, connections: int, seconds: float, rounds: int) -> list[Result]:
    """Send every input whose name contains `matching` to the tables, then the mixed load to each of them."""
    with ExitStack() as stack:
        folder, shared = Path(stack.enter_context(tempfile.TemporaryDirectory())), stack.enter_context(servers())
        addresses = {name: str(shared.address(name)) for name in tables if name in REMOTE}
        places = stack.enter_context(running(folder, addresses))
        elsewhere = stack.enter_context(running(folder / "elsewhere", addresses))
        lines = [line for table in tables for line in _lines(places, table, matching)]
        lines.sort(key=lambda line: line.badness, reverse=True)
        _show(lines[:SHOWN])
        results = [*map(_result, lines)]
        for table in tables:
            results += _Mixed(places, elsewhere, table, connections).run(seconds, rounds)
        return results


def _lines(places: Tables, table: str, matching: str) -> Iterator[Line]:
    for name in INPUTS if table == "memory" else STORE_INPUTS:
        if matching in name:
            yield Line(table, name, places.cost(table, name))


def _blocked_s(cost: Cost) -> float:
    """Return the longest turn, including the time that threads may have blocked the interpreter's lock."""
    return max(cost.loop_s, cost.process_s)


def _show(lines: Sequence[Line]) -> None:
    shown = Table(*COLUMNS, title="The worst inputs", title_justify="left")
    for line in lines:
        cost = line.cost
        status = " ".join((str(cost.answered.status), *cost.answered.codes))
        times = (f"{value * 1e3:.0f}" for value in (cost.loop_s, cost.process_s))
        times_of_request = f"{cost.memory_bytes / cost.request_bytes:.1f}" if cost.request_bytes > 2**20 else ""
        sizes = f"{cost.memory_bytes / 2**20:.0f}", times_of_request
        faults = "; ".join(cost.faults)
        shown.add_row(line.table, line.name, status, f"{cost.seconds:.2f}", *times, *sizes, faults)
    Console(width=WIDTH + 60).print(shown)


def _result(line: Line) -> Result:
    cost = line.cost
    counts = {
        "turn_us": round(_blocked_s(cost) * 1e6),
        "memory_bytes": cost.memory_bytes,
        "request_bytes": cost.request_bytes,
    }
    rate = 1 / max(cost.seconds, 1e-6)
    return Result(
        f"hostile, {line.table}", line.name, rate, "requests", RULE_S / max(_blocked_s(cost), 1e-6), counts=counts
    )


class _Mixed:
    """A normal caller of a table, in turn without and with hostile requests over several connections."""

    def __init__(self, places: Tables, elsewhere: Tables, table: str, connections: int) -> None:
        self._attacked = {WITH: places.watched, ELSEWHERE: elsewhere.watched}
        self._requests = _dealt(table)
        self._table = table
        self._connections = connections
        self._path = f"/v1/tables/{table}/records/normal"
        places.watched.send(Sent("PUT", self._path, b'{"n":1}', {"Content-Type": "application/json"}))

    def run(self, seconds: float, rounds: int) -> list[Result]:
        """Return 1 / p99 of the gets."""
        seen = dict[str, list[Seen]]({WITHOUT: [], ELSEWHERE: [], WITH: []})
        print(f"{self._table}, {self._connections} connections", flush=True)
        for _ in range(rounds):
            seen[WITHOUT].append(self._gets(seconds))
            for way in (ELSEWHERE, WITH):
                with _load(self._attacked[way], self._requests, self._connections) as load:
                    seen[way].append(self._gets(seconds))
                print(f"  {way}: {dict(load.statuses)}, resident MB: {load.sizes_mb}", flush=True)
        for way, each in seen.items():
            times = ", ".join(f"p{share * 100:g} {_median_s(each, share) * 1e3:.2f} ms" for share in (0.5, 0.9, 0.99))
            print(f"  {way}: {times}; {dict(sum((one.statuses for one in each), Counter()))}", flush=True)
        rates = [(way, _rate(_median_s(each, 0.99))) for way, each in seen.items()]
        return group(f"hostile requests, p99 of single gets, {self._table}", "gets, each after the last", rates, {})

    def _gets(self, seconds: float) -> Seen:
        get = f"GET {self._path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode()
        url = self._attacked[WITH].service.url
        return offer(url, [get] * RECORDS, connections=8, seconds=seconds, core=CLIENT_CORE, rate=RATE_PER_S)


def _dealt(table: str) -> list[Sent]:
    possible = [one for one in INPUTS.values() if not one.needs]
    return [one.make(table_of(table)) for one in random.Random(1).sample(possible, DEALT)]


def _rate(p99_s: float) -> float:
    """Return 1 / p99, or 0 if no get was answered."""
    return 1 / p99_s if p99_s else 0.0


def _median_s(each: Sequence[Seen], share: float) -> float:
    return median(quantile(one.accepted_s, share) for one in each)


class _Load:
    """Sends hostile requests over several connections and samples the service's memory until it is stopped."""

    def __init__(self, watched: Watched, requests: Sequence[Sent], connections: int) -> None:
        self.statuses: Counter[int] = Counter()
        self.sizes_mb: list[int] = []
        self._watched = watched
        self._requests = requests
        self._over = threading.Event()
        senders = [threading.Thread(target=self._send, args=(number,)) for number in range(connections)]
        self._threads = [*senders, threading.Thread(target=self._sample)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop, and wait for the requests that were sent."""
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _send(self, seed: int) -> None:
        # In production, clients run on other machines: here they take only the time that nothing else needs.
        os.sched_setscheduler(threading.get_native_id(), os.SCHED_IDLE, os.sched_param(0))
        chance = random.Random(seed)
        while not self._over.is_set():
            self.statuses[self._watched.send(chance.choice(self._requests)).status] += 1

    def _sample(self) -> None:
        process = psutil.Process(self._watched.service.pid)
        while not self._over.wait(5.0):
            self.sizes_mb.append(round(process.memory_info().rss / 1e6))


@contextmanager
def _load(watched: Watched, requests: Sequence[Sent], connections: int) -> Iterator[_Load]:
    load = _Load(watched, requests, connections)
    try:
        time.sleep(1.0)
        yield load
    finally:
        load.stop()
