"""Throughput at ten times the service's capacity, on RocksDB, with single requests and batches.

The service and the load generator have one core each. Other processes of the machine use these cores too, so the
benchmark compares throughput per CPU second of the service.
"""

import http.client
import json
import os
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

import psutil
from examples.demo.service import running

from . import records
from .cases import puts
from .load import send_all
from .open_loop import Seen, offer, quantile
from .report import Result, group

TIMES = 10
RECORDS = 20_000
BATCH = 1000
PEAK_CONNECTIONS = 64
SERVICE_CORE, CLIENT_CORE = 0, 1
CONNECTIONS = {"single get": 2000, "batch of 1000 gets, JSON": 1000}
SECONDS_TIMES = 12
"""The duration of overload as a multiple of `--seconds`: one minute by default."""

QUICK_S = 0.05
"""The latency of a single get when the service is otherwise idle, on a busy machine."""

CONFIG = """
stores: {{r: {{kind: rocksdb, path: {path}}}}}
tables: {{{table}: {{store: r}}}}
"""


def run(seconds: float) -> list[Result]:
    """For each kind of request, measure the peak, then send ten times that rate for 12 times the duration."""
    seconds = max(1.0, seconds * SECONDS_TIMES)
    results: list[Result] = []
    for name, requests in (("single get", _singles()), ("batch of 1000 gets, JSON", _batches())):
        with tempfile.TemporaryDirectory() as folder:
            results += _measured(name, requests, seconds, Path(folder))
    return results


def _measured(name: str, requests: Sequence[bytes], seconds: float, folder: Path) -> list[Result]:
    config = folder / "tableside.yaml"
    config.write_text(CONFIG.format(path=folder / "data", table=records.TABLE))
    with running(folder, config=config) as service:
        send_all(service.url, puts(RECORDS))
        process = psutil.Process(service.process.pid)
        for thread in process.threads():
            os.sched_setaffinity(thread.id, {SERVICE_CORE})
        _offer(service.url, process, requests, PEAK_CONNECTIONS, min(seconds, 3.0))  # warm-up
        peak, peak_share = _offer(service.url, process, requests, PEAK_CONNECTIONS, seconds)
        watcher = _Watcher(process)
        rate = TIMES * peak.accepted_per_s
        seen, share = _offer(service.url, process, requests, CONNECTIONS[name], seconds, rate)
        recovered_s = _recovered_s(service.url)
        _explain(name, peak, seen, watcher.stop(), recovered_s)
        print(f"    cores that the service had: {peak_share:.2f} at its peak, {share:.2f} in overload", flush=True)
    way = f"accepted while {TIMES} times the peak is offered"
    rates = [
        (f"peak, {PEAK_CONNECTIONS} connections", peak.accepted_per_s / peak_share),
        (way, seen.accepted_per_s / share),
    ]
    return group(f"overload, {name}", "requests per CPU second of the service", rates, {way: 0.8})


def _offer(
    url: str,
    process: psutil.Process,
    requests: Sequence[bytes],
    connections: int,
    seconds: float,
    rate: float | None = None,
) -> tuple[Seen, float]:
    """Return the results of the run, and the share of a core that the service used."""
    before_s = _spent_s(process)
    seen = offer(url, requests, connections=connections, seconds=seconds, core=CLIENT_CORE, rate=rate)
    return seen, (_spent_s(process) - before_s) / seconds


def _explain(name: str, peak: Seen, seen: Seen, sizes_mb: tuple[float, float, float], recovered_s: float) -> None:
    answered, refused = seen.accepted_s, seen.refused_s
    print(f"  {name}: peak {peak.accepted_per_s:,.0f}/s, offered {seen.offered_per_s:,.0f}/s")
    print(f"    accepted {seen.accepted_per_s:,.0f}/s, {seen.accepted_per_s / peak.accepted_per_s:.2f} of the peak")
    print(f"    by status {dict(seen.statuses)}, not sent {seen.unsent}, broken {seen.broken}")
    print(f"    accepted: p50 {quantile(answered, 0.5) * 1e3:.0f} ms, p99 {quantile(answered, 0.99) * 1e3:.0f} ms")
    print(f"    refused: p50 {quantile(refused, 0.5) * 1e3:.1f} ms, p99 {quantile(refused, 0.99) * 1e3:.1f} ms")
    print("    resident before {:.0f} MB, at most {:.0f}, after {:.0f}".format(*sizes_mb))
    print(f"    quick again {recovered_s:.2f} s after")


class _Watcher:
    """Samples the memory of a process until it is stopped."""

    def __init__(self, process: psutil.Process) -> None:
        self._process = process
        self._before_mb = self._max_mb = _resident_mb(process)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def stop(self) -> tuple[float, float, float]:
        """Return the resident size before, at most, and now, in MB."""
        self._done.set()
        self._thread.join()
        return self._before_mb, self._max_mb, _resident_mb(self._process)

    def _watch(self) -> None:
        while not self._done.wait(0.1):
            self._max_mb = max(self._max_mb, _resident_mb(self._process))


def _recovered_s(url: str) -> float:
    """Return the time until a get has a normal latency again."""
    started = time.perf_counter()
    parts = urlsplit(url)
    while True:
        asked_at = time.perf_counter()
        connection = http.client.HTTPConnection(parts.hostname or "127.0.0.1", parts.port, timeout=60)
        connection.request("GET", f"/v1/tables/{records.TABLE}/records/{records.key(0)}")
        answer = connection.getresponse()
        answer.read()
        connection.close()
        if answer.status == 200 and time.perf_counter() - asked_at < QUICK_S:
            return asked_at - started


def _singles() -> list[bytes]:
    path = f"/v1/tables/{records.TABLE}/records/"
    return [
        f"GET {path}{records.key(index)} HTTP/1.1\r\nhost: bench\r\n\r\n".encode() for index in range(0, RECORDS, 7)
    ]


def _batches() -> list[bytes]:
    requests = []
    for start in range(10):
        keys = [records.key((start * BATCH + index * 17) % RECORDS) for index in range(BATCH)]
        body = json.dumps({"operations": [{"op": "get", "key": key} for key in keys]}).encode()
        head = f"POST /v1/tables/{records.TABLE}/batch HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n"
        requests.append(head.encode() + b"content-length: %d\r\n\r\n" % len(body) + body)
    return requests


def _spent_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _resident_mb(process: psutil.Process) -> float:
    return float(process.memory_info().rss) / 1e6
