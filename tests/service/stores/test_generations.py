"""A store that forbids the control table of generations."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from redis.asyncio import Redis

from contract import put
from support.kinds import kind
from support.redis_tables import user
from support.waiting import WAIT_MAX_S
from tableside.catalog import Catalog, CatalogMetrics, Environment
from tableside.core import values
from tableside.core.operations import Get, Record, Written
from tableside.settings import validate

pytestmark = pytest.mark.server

UNREADABLE = "the generations of tables cannot be read"


@asynccontextmanager
async def opened(data: dict[str, Any]) -> AsyncIterator[Catalog]:
    catalog = await Catalog.open(validate(data), Environment(CatalogMetrics(CollectorRegistry())))
    following = asyncio.create_task(catalog.follow_generations())
    try:
        yield catalog
    finally:
        following.cancel()
        await catalog.close()


async def read(catalog: Catalog) -> object:
    found = await (await catalog.table("t")).one(Get("a"))
    assert isinstance(found, Record)
    return values.decode(found.value)


async def replace(catalog: Catalog, value: int) -> int:
    """Replace the content of the table with one record, and return the number of its generation."""
    generations = await catalog.generations("t")
    number = (await generations.create()).number
    assert isinstance(await (await catalog.table(f"t@{number}")).one(put("a", {"n": value})), Written)
    await generations.activate(number)
    return number


async def test_a_store_that_forbids_the_control_table_serves_its_tables(
    request: pytest.FixtureRequest, tmp_path: Path, redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    data = kind("redis", request, tmp_path).configuration(generations=True)
    name = data["tables"]["t"]["name"]
    plain = {"store": "s", "name": name}
    async with opened(data) as full:
        await replace(full, 1)  # creates the control table
        await (await full.generations("t")).activate(1)
        async with (
            Redis.from_url(redis_url) as tool,
            user(redis_url, "+@all", [f"{name}:*", f"*@{name}:*", "_ts:*"]) as given,
        ):
            restricted = {"kind": "redis", "url": redis_url, **given}
            async with opened({"stores": {"s": restricted}, "tables": {"t": plain}}) as limited:
                assert isinstance(await (await limited.table("t")).one(put("a", {"n": 0})), Written)
                await asyncio.sleep(2.5)
                assert await read(limited) == {"n": 0}
                assert sum(UNREADABLE in one.getMessage() for one in caplog.records) == 1
                await (await full.generations("t")).activate(2)
                await tool.acl_setuser("u", enabled=True, keys=["*"])
                async with asyncio.timeout(WAIT_MAX_S):
                    while await read(limited) != {"n": 1}:
                        await asyncio.sleep(0.1)
