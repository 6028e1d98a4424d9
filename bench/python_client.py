"""The Python clients on a Redis table against HTTP libraries with the same requests, and against redis-py.

Every way reads or changes random records of the same ones, and decodes their JSON. A number in Redis has no token, so
that a repeated request counts twice.
"""

import asyncio
import itertools
import json
import random
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, ExitStack
from functools import partial
from pathlib import Path
from typing import TypeAlias

import aiohttp
import httpx
import redis.asyncio
import urllib3

from servers.redis import redis as redis_server
from tableside_client import AsyncClient, Client

from . import records
from .report import Result
from .services import serving
from .turns import Comparison, Rate, measured

TASKS = 32
BATCH = 500
RECORDS = 5000
KEYS = [f"N{number:06}" for number in range(RECORDS)]
INCREMENT = {"$inc": {"seats": 1}}
BODY = json.dumps({"update": INCREMENT}).encode()

Call: TypeAlias = Callable[[str], object]
AsyncCall: TypeAlias = Callable[[str], Awaitable[object]]

sequences = itertools.count(1)


def run(seconds: float, rounds: int = 3) -> list[Result]:
    """Measure all ways in turn over several rounds, and return the medians in requests or records per second."""
    with tempfile.TemporaryDirectory() as name, redis_server(Path(name)) as url:
        store = {"kind": "redis", "url": url}
        with (
            serving(Path(name) / "service", store, {records.TABLE: {}}) as service,
            asyncio.Runner() as runner,
            ExitStack() as clients,
        ):
            opened = AsyncExitStack()
            clients.callback(lambda: runner.run(opened.aclose()))
            comparisons = runner.run(_of_tasks(service.url, url, opened, runner, seconds))
            return measured([*comparisons, *_of_a_thread(service.url, clients, seconds)], rounds)


async def _of_tasks(
    service_url: str, redis_url: str, opened: AsyncExitStack, runner: asyncio.Runner, seconds: float
) -> list[Comparison]:
    """Write the records, and return the comparisons of asyncio clients."""
    direct = await opened.enter_async_context(redis.asyncio.Redis.from_url(redis_url))
    client = await opened.enter_async_context(AsyncClient(service_url))
    table = client.table(records.TABLE)
    shared = (await opened.enter_async_context(AsyncClient(service_url, coalesce=True))).table(records.TABLE)
    session = await opened.enter_async_context(aiohttp.ClientSession(f"{service_url}{records_path()}"))
    web = await opened.enter_async_context(httpx.AsyncClient(base_url=f"{service_url}{records_path()}"))
    values = {key: {"manufacturer": "BOEING", "seats": number} for number, key in enumerate(KEYS)}
    await table.load(values.items())
    await direct.mset({f"direct:{key}": json.dumps(value) for key, value in values.items()})

    async def aiohttp_get(key: str) -> None:
        async with session.get(key) as response:
            await response.json()

    async def aiohttp_update(key: str) -> None:
        async with session.patch(key, data=BODY, headers=token_headers()) as response:
            await response.read()

    async def httpx_get(key: str) -> None:
        (await web.get(key)).json()

    async def redis_get(key: str) -> None:
        json.loads(await direct.get(f"direct:{key}") or "")

    async def redis_mget(_: str) -> None:
        [json.loads(value or "") for value in await direct.mget([f"direct:{key}" for key in chosen()])]

    rates = partial(_rates, partial(_task_rate, runner), seconds)
    title = f"Redis, {TASKS} tasks"
    return [
        _comparison(
            f"{title}, get",
            "requests",
            rates(
                {
                    "aiohttp": aiohttp_get,
                    "AsyncClient": table.get,
                    "AsyncClient, coalesce=True": shared.get,
                    "httpx": httpx_get,
                    "redis.asyncio": redis_get,
                }
            ),
            {"AsyncClient": 0.6},
        ),
        _comparison(
            f"{title}, update with a token",
            "requests",
            rates(
                {
                    "aiohttp": aiohttp_update,
                    "AsyncClient": lambda key: table.update(key, INCREMENT, token=("bench", next(sequences))),
                    "httpx": lambda key: web.patch(key, content=BODY, headers=token_headers()),
                    "redis.asyncio, HINCRBY": lambda key: direct.hincrby(f"counter:{key}", "seats", 1),
                }
            ),
            {"AsyncClient": 0.6},
        ),
        _comparison(
            f"{title}, get of {BATCH}",
            "records",
            rates(
                {"redis.asyncio, MGET": redis_mget, "AsyncClient, get_many": lambda _: table.get_many(chosen())}, BATCH
            ),
            {},
        ),
    ]


def _of_a_thread(service_url: str, clients: ExitStack, seconds: float) -> list[Comparison]:
    """Return the comparisons of blocking clients."""
    url = f"{service_url}{records_path()}"
    table = clients.enter_context(Client(service_url)).table(records.TABLE)
    pool = clients.enter_context(urllib3.PoolManager())
    web = clients.enter_context(httpx.Client(base_url=url))
    rates = partial(_rates, _thread_rate, seconds)
    return [
        _comparison(
            "Redis, one thread, get",
            "requests",
            rates(
                {
                    "urllib3": lambda key: pool.request("GET", url + key).json(),
                    "Client": table.get,
                    "httpx": lambda key: web.get(key).json(),
                }
            ),
            {"Client": 0.8},
        ),
        _comparison(
            "Redis, one thread, update with a token",
            "requests",
            rates(
                {
                    "urllib3": lambda key: pool.request("PATCH", url + key, body=BODY, headers=token_headers()).data,
                    "Client": lambda key: table.update(key, INCREMENT, token=("bench", next(sequences))),
                    "httpx": lambda key: web.patch(key, content=BODY, headers=token_headers()),
                }
            ),
            {"Client": 0.8},
        ),
    ]


def _comparison(title: str, unit: str, ways: dict[str, Rate], ratios_min: Mapping[str, float]) -> Comparison:
    """Return a comparison that also measures the CPU time of this process, where the clients are."""
    return Comparison(title, unit, ways, ratios_min, services={})


def records_path() -> str:
    """Return the path below which every record has its key."""
    return f"/v1/tables/{records.TABLE}/records/"


def token_headers() -> dict[str, str]:
    """Return the headers of an update with the next token."""
    return {"Content-Type": "application/json", "Tableside-Token": f"bench/{next(sequences)}"}


def chosen() -> list[str]:
    """Return the keys of one batch."""
    return random.choices(KEYS, k=BATCH)


def _rates(
    rate: Callable[..., float], seconds: float, ways: dict[str, Callable[..., object]], size: int = 1
) -> dict[str, Rate]:
    return {way: partial(rate, call, seconds, size) for way, call in ways.items()}


def _task_rate(runner: asyncio.Runner, call: AsyncCall, seconds: float, size: int) -> float:
    """Return how many requests or records per second `TASKS` tasks complete."""
    ends_at = time.monotonic() + seconds
    done = itertools.count()

    async def work() -> None:
        while time.monotonic() < ends_at:
            await call(random.choice(KEYS))
            next(done)

    async def work_all() -> None:
        await asyncio.gather(*(work() for _ in range(TASKS)))

    runner.run(work_all())
    return next(done) * size / seconds


def _thread_rate(call: Call, seconds: float, size: int) -> float:
    """Return how many requests per second one thread completes."""
    ends_at, done = time.monotonic() + seconds, 0
    while time.monotonic() < ends_at:
        call(random.choice(KEYS))
        done += size
    return done / seconds
