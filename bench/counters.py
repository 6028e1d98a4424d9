"""The web service of `examples/counters.py` under load, against the same service written with `redis.asyncio`.

Each application is one uvicorn process. wrk sends the requests, so both pay for FastAPI. All applications use one Redis
and are measured in turn. Unlike a record, a number of the baseline has no token, so a repeated request counts twice.
"""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import httpx

from servers import process
from servers.redis import redis

from . import wrk
from .report import Result
from .services import serving
from .turns import Comparison, measured

PAGES = 5000
BATCH = 500
CONNECTIONS = 32

APPLICATIONS = {
    "redis.asyncio": "with_redis",
    "AsyncClient": "without_coalescing",
    "AsyncClient, coalesce=True": "with_coalescing",
}
"""The functions of `counter_applications` that create the applications, the baseline first."""

SINGLE = """
math.randomseed(os.time())
request = function() return wrk.format("%s", string.format("/visits/page%%d", math.random(0, %d))) end
"""
MANY = """
math.randomseed(os.time())
wrk.headers["Content-Type"] = "application/json"
request = function()
  local numbers, first = {}, math.random(0, %d)
  for page = first, first + %d - 1 do numbers[#numbers + 1] = string.format('"page%%d":1', page) end
  return wrk.format("POST", "/visits", nil, "{" .. table.concat(numbers, ",") .. "}")
end
"""
LOADS = {
    "GET /visits/{page}": (1, SINGLE % ("GET", PAGES - 1)),
    "POST /visits/{page}": (1, SINGLE % ("POST", PAGES - 1)),
    f"POST /visits with {BATCH} pages": (BATCH, MANY % (PAGES - BATCH, BATCH)),
}
"""Lua scripts for wrk, and the number of counters in one request."""


def run(seconds: float, rounds: int = 3) -> list[Result]:
    """Measure all applications in turn over several rounds, and return the medians in counters per second."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        redis_url = stack.enter_context(redis(directory))
        store = {"kind": "redis", "url": redis_url}
        service = stack.enter_context(serving(directory / "service", store, {"counters": {}}))
        environment = {"REDIS_URL": redis_url, "TABLESIDE_URL": service.url}
        urls = {
            name: stack.enter_context(_application(function, environment, directory))
            for name, function in APPLICATIONS.items()
        }
        for url in urls.values():
            _count_every_page(url)
        comparisons = [
            Comparison(load, "counters", {name: partial(_rate, url, *how, seconds) for name, url in urls.items()})
            for load, how in LOADS.items()
        ]
        return measured(comparisons, rounds)


def _rate(url: str, size: int, script: str, seconds: float) -> float:
    return size * wrk.requests_per_second(url, script, connections=CONNECTIONS, seconds=seconds)


@contextmanager
def _application(function: str, environment: dict[str, str], directory: Path) -> Iterator[str]:
    """Run an application and yield its URL."""
    port = process.free_port()
    command = [sys.executable, "-m", "uvicorn", "--factory", f"bench.counter_applications:{function}"]
    arguments = ["--host", process.HOST, "--port", str(port), "--no-access-log"]
    server = process.Server(
        function,
        [*command, *arguments],
        partial(process.accepts_connections, port),
        directory=Path(__file__).parents[1],
        environment={**os.environ, **environment},
    )
    with process.running(server, directory):
        yield f"http://{process.HOST}:{port}"


def _count_every_page(url: str) -> None:
    """Count each page once, so that every read finds a record."""
    for first in range(0, PAGES, BATCH):
        numbers = {f"page{page}": 1 for page in range(first, first + BATCH)}
        response = httpx.post(f"{url}/visits", json=numbers).raise_for_status()
        if response.json():
            raise RuntimeError(f"{url} did not count every page: {response.text}")
