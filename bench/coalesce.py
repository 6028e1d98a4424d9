"""Single GETs over many connections, with the default coalescing of store calls and without it.

Uses Redis, and a DynamoDB stub with fixed responses, because an emulator would be the bottleneck.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

import httpx
from examples.demo.service import Service, free_port

from servers.redis import redis

from . import records
from .cases import puts
from .load import send_all, small_requests_per_second
from .report import Result
from .services import serving
from .turns import Comparison, measured

CONNECTIONS = (1, 64, 256)
RECORDS = 5000
WITH, WITHOUT = "coalesced", "one call each"
TARGETS = {"Redis": {1: 0.9, 256: 1.5}, "DynamoDB": {1: 0.9, 256: 5.0}}
"""The minimum ratio to one store call per request, by store and connections."""

WAYS: Mapping[str, Mapping[str, object]] = {WITHOUT: {"batch": {"share_reads": False}}, WITH: {}}
AWS = {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench", "AWS_EC2_METADATA_DISABLED": "true"}

GET = f"""
math.randomseed(os.time())
request = function()
  return wrk.format("GET", string.format("/v1/tables/{records.TABLE}/records/N%06d", math.random(0, {RECORDS - 1})))
end
"""


def run(seconds: float, rounds: int = 3) -> list[Result]:
    """Measure both ways in turn, several times over, and return the medians in requests per second."""
    with tempfile.TemporaryDirectory() as name, redis(Path(name)) as url:
        results = _on_store("Redis", {"kind": "redis", "url": url}, seconds, rounds, fill=True)
    with _dynamodb() as url:
        store = {"kind": "dynamodb", "endpoint_url": url, "region": "eu-west-1"}
        return results + _on_store("DynamoDB", store, seconds, rounds, fill=False)


def _on_store(kind: str, store: Mapping[str, object], seconds: float, rounds: int, *, fill: bool) -> list[Result]:
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        tables = {way: {records.TABLE: {"create": False, **policies}} for way, policies in WAYS.items()}
        services = {
            way: stack.enter_context(serving(Path(name) / way, store, of_way, environment=AWS))
            for way, of_way in tables.items()
        }
        if fill:
            send_all(services[WITHOUT].url, puts(RECORDS))
        comparisons = [
            Comparison(
                f"single GET, {kind}, {connections} at once",
                "requests",
                {way: partial(_rate, service, connections, seconds) for way, service in services.items()},
                {WITH: TARGETS[kind][connections]} if connections in TARGETS[kind] else {},
            )
            for connections in CONNECTIONS
        ]
        return measured(comparisons, rounds)


def _rate(service: Service, connections: int, seconds: float) -> float:
    return small_requests_per_second(service.url, GET, connections=connections, seconds=seconds)


@contextmanager
def _dynamodb() -> Iterator[str]:
    """Run the DynamoDB stub and yield its URL."""
    port = free_port()
    process = subprocess.Popen([sys.executable, "-m", "bench.dynamodb_stub", str(port)])
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_until_it_answers(url, process)
        yield url
    finally:
        process.terminate()
        process.wait()


def _wait_until_it_answers(url: str, process: subprocess.Popen[bytes], within_s: float = 20.0) -> None:
    ends = time.monotonic() + within_s
    while time.monotonic() < ends and process.poll() is None:
        with suppress(httpx.TransportError):
            if httpx.post(url, json={}, headers={"X-Amz-Target": "DynamoDB_20120810.ListTables"}).is_success:
                return
        time.sleep(0.05)
    raise RuntimeError("the DynamoDB stub did not start")
