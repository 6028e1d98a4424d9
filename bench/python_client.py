"""`AsyncClient` on a Redis table against `redis.asyncio` on the same server: single reads, shared reads and batches.

Every way reads the same records with the same number of tasks, and decodes their JSON.
"""

import asyncio
import json
import random
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import redis.asyncio

from servers.redis import redis as redis_server
from tableside_client import AsyncClient

from . import records
from .report import Result
from .services import serving
from .turns import Comparison, measured

TASKS = 32
BATCH = 500
RECORDS = 5000

Read = Callable[[list[str]], Awaitable[object]]


def run(seconds: float, rounds: int = 3) -> list[Result]:
    """Measure all ways in turn over several rounds, and return the medians in records per second."""
    with tempfile.TemporaryDirectory() as name, redis_server(Path(name)) as url:
        store = {"kind": "redis", "url": url}
        with serving(Path(name) / "service", store, {records.TABLE: {}}) as service, asyncio.Runner() as runner:
            clients = AsyncExitStack()
            try:
                ways = {
                    way: partial(_rate, runner, read, size, seconds)
                    for way, (size, read) in runner.run(_ways(service.url, url, clients)).items()
                }
                return measured([Comparison("Python client, Redis, 32 tasks", "records", ways)], rounds)
            finally:
                runner.run(clients.aclose())


async def _ways(service_url: str, redis_url: str, clients: AsyncExitStack) -> dict[str, tuple[int, Read]]:
    """Write the records, and return the ways to read them, with the number of keys of each read."""
    direct = await clients.enter_async_context(redis.asyncio.Redis.from_url(redis_url))
    table = (await clients.enter_async_context(AsyncClient(service_url))).table(records.TABLE)
    shared = (await clients.enter_async_context(AsyncClient(service_url, coalesce=True))).table(records.TABLE)
    values = {f"N{number:06}": {"manufacturer": "BOEING", "seats": number} for number in range(RECORDS)}
    await table.load(values.items())
    await direct.mset({f"direct:{key}": json.dumps(value) for key, value in values.items()})

    async def read_direct(keys: list[str]) -> None:
        json.loads(await direct.get(f"direct:{keys[0]}") or "")

    async def read_direct_many(keys: list[str]) -> None:
        [json.loads(value or "") for value in await direct.mget([f"direct:{key}" for key in keys])]

    return {
        "redis.asyncio, get": (1, read_direct),
        "AsyncClient, get": (1, lambda keys: table.get(keys[0])),
        "AsyncClient, get, coalesce=True": (1, lambda keys: shared.get(keys[0])),
        f"redis.asyncio, mget of {BATCH}": (BATCH, read_direct_many),
        f"AsyncClient, get_many of {BATCH}": (BATCH, table.get_many),
    }


def _rate(runner: asyncio.Runner, read: Read, size: int, seconds: float) -> float:
    return runner.run(_read(read, size, seconds))


async def _read(read: Read, size: int, seconds: float) -> float:
    """Return the records per second that `TASKS` tasks read."""
    ends_at = time.monotonic() + seconds
    done: list[Any] = []

    async def work() -> None:
        while time.monotonic() < ends_at:
            await read([f"N{random.randrange(RECORDS):06}" for _ in range(size)])
            done.append(None)

    await asyncio.gather(*(work() for _ in range(TASKS)))
    return len(done) * size / seconds
