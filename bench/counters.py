"""The web service of `examples/counters.py` under load, against the same service written with `redis.asyncio`.

Each application is one uvicorn process. `TABLESIDE_URL` and `REDIS_URL` name its servers. wrk sends the requests, so
both pay for FastAPI. All applications use one Redis and are measured in turn. Unlike a record, a number of the baseline
has no token, so a repeated request counts twice.
"""

import os
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path

import httpx
import redis.asyncio
from examples import counters
from fastapi import FastAPI

from servers import process
from servers.redis import redis as redis_server
from tableside_client import AsyncClient

from .load import small_requests_per_second
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
"""The functions that create the applications, the baseline first."""

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
        redis_url = stack.enter_context(redis_server(directory))
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
    return size * small_requests_per_second(url, script, connections=CONNECTIONS, seconds=seconds)


@contextmanager
def _application(function: str, environment: dict[str, str], directory: Path) -> Iterator[str]:
    """Run an application and yield its URL."""
    port = process.free_port()
    command = [sys.executable, "-m", "uvicorn", "--factory", f"bench.counters:{function}"]
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


def with_coalescing() -> FastAPI:
    """Return the example as it is."""
    return counters.app


def without_coalescing() -> FastAPI:
    """Return the example with a client that sends a request for each read."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncClient() as client:
            app.state.counters = client.table("counters", counters.Counter)
            yield

    counters.app.router.lifespan_context = lifespan
    return counters.app


def with_redis() -> FastAPI:
    """Return an application with the endpoints of the example that keeps each number in a Redis string."""
    client = redis.asyncio.Redis.from_url(os.environ["REDIS_URL"])
    app = FastAPI()

    @app.post("/visits/{page}", status_code=204)
    async def count(page: str) -> None:
        await client.incr(f"visits:{page}")

    @app.get("/visits/{page}")
    async def visits(page: str) -> counters.Counter:
        return counters.Counter(visits=int(await client.get(f"visits:{page}") or 0))

    @app.post("/visits")
    async def count_many(numbers: dict[str, int]) -> dict[str, str]:
        pipeline = client.pipeline(transaction=False)
        for page, number in numbers.items():
            pipeline.incrby(f"visits:{page}", number)
        await pipeline.execute()
        return {}

    return app
