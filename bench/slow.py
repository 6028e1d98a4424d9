"""The latency of single gets with and without 2,000 slow clients of all kinds.

The rate of the gets is well below the service's capacity. Rounds with and without the slow clients alternate, so that
disturbances affect both.
"""

import os
import tempfile
import time
from pathlib import Path
from statistics import median

import httpx
import psutil
from examples.demo.service import Service, running

from . import records
from .cases import puts
from .load import send_all
from .open_loop import Seen, offer, quantile
from .overload import CLIENT_CORE, CONFIG, SERVICE_CORE
from .report import Result, group
from .slow_callers import slow_callers

CALLERS = {"silent": 400, "head": 400, "body": 400, "unread": 400, "idle": 400}
LARGE_BYTES = 500_000
LARGE_PATH = f"/v1/tables/{records.TABLE}/records/large"
RECORDS = 5000
CONNECTIONS = 32
RATE_PER_S = 1000.0
SETTLE_S = 3.0
"""The wait between connecting the slow clients and measuring: afterwards their bodies do not count as in flight."""

WITHOUT, WITH = "others alone", "others beside 2,000 slow callers"


def run(seconds: float, rounds: int = 3) -> list[Result]:
    """Measure both variants in turn, and return 1 / p99: the rate of a client that sends requests sequentially."""
    seen: dict[str, list[Seen]] = {WITHOUT: [], WITH: []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = folder / "tableside.yaml"
        config.write_text(CONFIG.format(path=folder / "data", table=records.TABLE))
        with running(folder, config=config) as service:
            _prepare(service)
            for _ in range(rounds):
                seen[WITHOUT].append(_offer(service, seconds))
                with slow_callers(service.url, LARGE_PATH, CALLERS):
                    time.sleep(SETTLE_S)
                    seen[WITH].append(_offer(service, seconds))
                time.sleep(SETTLE_S)
    for way, each in seen.items():
        _explain(way, each)
    rates = [(way, 1 / _median_s(each, 0.99)) for way, each in seen.items()]
    return group("slow callers, p99 of single gets", "gets, each after the last", rates, {WITH: 0.5})


def _prepare(service: Service) -> None:
    for thread in psutil.Process(service.process.pid).threads():
        os.sched_setaffinity(thread.id, {SERVICE_CORE})
    send_all(service.url, puts(RECORDS))
    httpx.put(service.url + LARGE_PATH, json={"a": "x" * LARGE_BYTES}).raise_for_status()


def _offer(service: Service, seconds: float) -> Seen:
    path = f"/v1/tables/{records.TABLE}/records/"
    requests = [
        f"GET {path}{records.key(index)} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode() for index in range(RECORDS)
    ]
    return offer(service.url, requests, connections=CONNECTIONS, seconds=seconds, core=CLIENT_CORE, rate=RATE_PER_S)


def _explain(way: str, each: list[Seen]) -> None:
    statuses = sum((seen.statuses for seen in each), start=type(each[0].statuses)())
    times = ", ".join(f"p{share * 100:g} {_median_s(each, share) * 1e3:.2f} ms" for share in (0.5, 0.9, 0.99))
    print(f"  {way}: {times}; {dict(statuses)}, broken {sum(seen.broken for seen in each)}", flush=True)


def _median_s(each: list[Seen], share: float) -> float:
    return median(quantile(seen.accepted_s, share) for seen in each)
