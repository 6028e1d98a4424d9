"""Generations of tables in stores that forbid something, and removal on every store."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace as replaced
from prometheus_client import CollectorRegistry
from redis.asyncio import Redis

from contract import put
from support.dynamodb_tables import CREDENTIALS
from support.kinds import kind
from support.postgres_tables import psql, role
from support.redis_tables import PASSWORD, user
from support.waiting import WAIT_MAX_S, eventually
from tableside import stores
from tableside.catalog import Catalog, Environment, StackMetrics, table_entry
from tableside.core import TableNotFound, values
from tableside.core.operations import Get, Record, Written
from tableside.core.store import Scan
from tableside.settings import validate

pytestmark = pytest.mark.server

UNREADABLE = "the generations of tables cannot be read"


@asynccontextmanager
async def opened(data: dict[str, Any]) -> AsyncIterator[Catalog]:
    catalog = await Catalog.open(validate(data), Environment(StackMetrics(CollectorRegistry())))
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


@pytest.mark.parametrize("store", ["redis", "postgres", "dynamodb"])
async def test_replaced_generations_are_removed(
    store: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, setting in CREDENTIALS.items():
        monkeypatch.setenv(variable, setting)
    monkeypatch.setattr(table_entry, "DROP_AFTER_S", 0.0)
    data = kind(store, request, tmp_path).configuration(generations=True, deadline_s=3)
    async with opened(data) as catalog:
        assert isinstance(await (await catalog.table("t")).one(put("a", {"n": 1})), Written)
        generations = await catalog.generations("t")
        assert [await replace(catalog, value) for value in (2, 3)] == [2, 3]
        assert await read(catalog) == {"n": 3}
        await eventually(lambda: [one.number for one in generations.known.every] == [2, 3])
        await generations.activate(2)
        assert await read(catalog) == {"n": 2}
    settings = validate(data)
    backend = await stores.backend_type(settings.stores["s"].kind).open(settings.stores["s"].options)
    try:
        first = await backend.store(replaced(settings.tables["t"].spec("t"), create=False))
        assert (await first.scan(Scan(10))).records == []
    except TableNotFound:
        pass
    finally:
        await backend.close()


@asynccontextmanager
async def restricted(store: str, name: str, request: pytest.FixtureRequest) -> AsyncIterator[tuple[Any, Any]]:
    """Yield the settings of a store whose user may use one table alone, and a function that ends this."""
    if store == "redis":
        url = request.getfixturevalue("redis_url")
        async with Redis.from_url(url) as tool, user(url, "+@all", [f"{name}:*", f"*@{name}:*", "_ts:*"]) as given:
            yield (
                {"kind": "redis", "url": url, **given},
                lambda: tool.acl_setuser("u", enabled=True, passwords=[f"+{PASSWORD}"], keys=["*"], commands=["+@all"]),
            )
    else:
        dsn = request.getfixturevalue("postgres_dsn")
        async with role(dsn) as restricted_dsn, psql(dsn) as direct:
            name_of_role = restricted_dsn.partition("://")[2].partition("@")[0]
            await direct.execute(f'GRANT SELECT, INSERT, UPDATE, DELETE ON "{name}" TO {name_of_role}')
            yield (
                {"kind": "postgres", "dsn": restricted_dsn},
                lambda: direct.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {name_of_role}"),
            )


@pytest.mark.parametrize("store", ["redis", "postgres"])
async def test_a_store_that_forbids_the_control_table_serves_its_tables(
    store: str, request: pytest.FixtureRequest, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = kind(store, request, tmp_path).configuration(generations=True)
    name = data["tables"]["t"]["name"]
    async with opened(data) as full:
        await replace(full, 1)  # creates the control table
        await (await full.generations("t")).activate(1)
        async with restricted(store, name, request) as (settings, allow):
            plain = {"store": "s", "name": name}
            async with opened({"stores": {"s": settings}, "tables": {"t": plain}}) as limited:
                assert isinstance(await (await limited.table("t")).one(put("a", {"n": 0})), Written)
                await asyncio.sleep(2.5)
                assert await read(limited) == {"n": 0}
                assert sum(UNREADABLE in one.getMessage() for one in caplog.records) == 1
                await (await full.generations("t")).activate(2)
                await allow()
                async with asyncio.timeout(WAIT_MAX_S):
                    while await read(limited) != {"n": 1}:
                        await asyncio.sleep(0.1)
