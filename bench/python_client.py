"""`AsyncClient` on a Redis table against `redis.asyncio` on the same server: single reads, shared reads and batches.

Every way reads the same records with the same number of tasks, and decodes their JSON.
"""

import asyncio
import json
import random
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from typing import Any

import redis.asyncio
import yaml
from examples.demo.service import running

from servers.redis import redis as redis_server
from tableside_client import AsyncClient

from . import records
from .report import Result, group

TASKS = 32
BATCH = 500
RECORDS = 5000

Read = Callable[[list[str]], Awaitable[object]]


def run(seconds: float, rounds: int = 3) -> list[Result]:
    """Measure all ways in turn over several rounds, and return the medians in records per second."""
    with tempfile.TemporaryDirectory() as name, redis_server(Path(name)) as url:
        config = Path(name) / "tableside.yaml"
        settings = {"stores": {"redis": {"kind": "redis", "url": url}}, "tables": {records.TABLE: {"store": "redis"}}}
        config.write_text(yaml.safe_dump(settings))
        with running(Path(name), config=config) as service:
            return asyncio.run(_measure(service.url, url, seconds, rounds))


async def _measure(service_url: str, redis_url: str, seconds: float, rounds: int) -> list[Result]:
    async with (
        redis.asyncio.Redis.from_url(redis_url) as direct,
        AsyncClient(service_url) as client,
        AsyncClient(service_url, coalesce=True) as sharing,
    ):
        values = {f"N{number:06}": {"manufacturer": "BOEING", "seats": number} for number in range(RECORDS)}
        table, shared = client.table(records.TABLE), sharing.table(records.TABLE)
        await table.load(values.items())
        await direct.mset({f"direct:{key}": json.dumps(value) for key, value in values.items()})

        async def read_direct(keys: list[str]) -> None:
            json.loads(await direct.get(f"direct:{keys[0]}") or "")

        async def read_direct_many(keys: list[str]) -> None:
            [json.loads(value or "") for value in await direct.mget([f"direct:{key}" for key in keys])]

        ways: dict[str, tuple[int, Read]] = {
            "redis.asyncio, get": (1, read_direct),
            "AsyncClient, get": (1, lambda keys: table.get(keys[0])),
            "AsyncClient, get, coalesce=True": (1, lambda keys: shared.get(keys[0])),
            f"redis.asyncio, mget of {BATCH}": (BATCH, read_direct_many),
            f"AsyncClient, get_many of {BATCH}": (BATCH, table.get_many),
        }
        rates: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(rounds):
            for name, (size, read) in ways.items():
                rates[name].append(await _rate(read, size, seconds))
    medians = [(name, median(found)) for name, found in rates.items()]
    return group("Python client, Redis, 32 tasks", "records", medians, {})


async def _rate(read: Read, size: int, seconds: float) -> float:
    """Return the records per second that `TASKS` tasks read."""
    ends_at = time.monotonic() + seconds
    done: list[Any] = []

    async def work() -> None:
        while time.monotonic() < ends_at:
            await read([f"N{random.randrange(RECORDS):06}" for _ in range(size)])
            done.append(None)

    await asyncio.gather(*(work() for _ in range(TASKS)))
    return len(done) * size / seconds
