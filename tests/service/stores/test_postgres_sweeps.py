"""The sweep of PostgreSQL's tables removes expired rows, and nothing that the store still needs."""

import asyncio

import asyncpg
import pytest

from contract import Time, put, update, written
from support.postgres_tables import database, new_name
from support.waiting import WAIT_MAX_S
from tableside.core.operations import Delete, Token
from tableside.core.store import TableSpec
from tableside.stores.postgres.backend import PostgresTableOptions
from tableside.stores.postgres.schema import quoted

pytestmark = pytest.mark.server

MEMORY_S = 100_000.0


class Table:
    """A table in either layout, and what a direct connection finds in it."""

    def __init__(self, direct: asyncpg.Connection, layout: str) -> None:
        self.direct = direct
        self.name = new_name()
        self.side = self.name if layout == "document" else f"_ts_{self.name}"
        self.rows = f"{quoted(self.name)} {'WHERE value IS NOT NULL' if layout == 'document' else ''}"
        options = PostgresTableOptions.model_validate({"layout": layout})
        self.spec = TableSpec("t", stored_as=self.name, create=True, options=options, delete_memory_s=MEMORY_S)

    async def keys(self) -> set[str]:
        return {row["key"] for row in await self.direct.fetch(f"SELECT key FROM {self.rows}")}

    async def remembered(self) -> set[str]:
        """Return the keys of which tokens or orders are remembered."""
        remembered = f"SELECT key FROM {quoted(self.side)} WHERE _ts_writers IS NOT NULL"
        return {row["key"] for row in await self.direct.fetch(remembered)}


@pytest.fixture(params=["document", "columns"])
async def table(request: pytest.FixtureRequest, direct: asyncpg.Connection) -> Table:
    table = Table(direct, request.param)
    if request.param == "columns":
        await direct.execute(f"CREATE TABLE {quoted(table.name)} (key text PRIMARY KEY, n bigint)")
    return table


async def test_expired_records_are_removed_in_the_background(postgres_dsn: str, table: Table) -> None:
    time = Time(real=False)
    async with database(postgres_dsn, time, sweep_every_s=0.1) as backend:
        store = await backend.store(table.spec)
        await store.apply([put(f"{index}", {}, ttl_s=1 if index % 3 == 0 else None) for index in range(3000)])
        await time.passes(1.0)
        async with asyncio.timeout(WAIT_MAX_S):
            while await table.keys() != {f"{index}" for index in range(3000) if index % 3}:
                await asyncio.sleep(0.02)


async def test_a_record_that_another_write_keeps_is_not_removed(postgres_dsn: str, table: Table) -> None:
    time = Time(real=False)
    async with database(postgres_dsn, time) as backend:
        store = await backend.store(table.spec)
        await store.apply([put(key, {}, ttl_s=1) for key in ("renewed", "expired")])
        await store.apply([put("renewed"), Delete("deleted", token=Token("w", 1))])
        await time.passes(1)
        await store.sweep()
        assert await table.keys() == {"renewed"}
        assert "deleted" in await table.remembered()
        await time.passes(24 * 3600)
        await store.sweep()
        assert "deleted" not in await table.remembered()


async def test_the_orders_of_expired_records_are_kept(postgres_dsn: str, table: Table) -> None:
    time = Time(real=False)
    async with database(postgres_dsn, time) as backend:
        store = await backend.store(table.spec)
        await store.apply([put("a", {"n": 1}, order=5, ttl_s=10), put("b", {"n": 1}, ttl_s=10), put("c", {}, order=5)])
        await time.passes(10)
        await store.sweep()
        assert await table.keys() == {"c"}
        await time.passes(MEMORY_S - 1)
        await store.sweep()
        assert (await written(store, update("a", {"n": 2}, order=4))).superseded
        await time.passes(1)
        await store.sweep()
        assert await table.remembered() == {"c"}
        await written(store, Delete("c"))
        assert await table.remembered() == {"c"}
        await written(store, Delete("c", forget=True))
        assert await table.remembered() == set()


async def test_a_table_that_stores_no_expiry_needs_no_connection_for_a_sweep(
    postgres_dsn: str, direct: asyncpg.Connection
) -> None:
    name = new_name()
    await direct.execute(f"CREATE TABLE {quoted(name)} (key text PRIMARY KEY, n bigint)")
    options = PostgresTableOptions(layout="columns")
    async with database(postgres_dsn, connections_max=1) as backend:
        store = await backend.store(TableSpec("t", stored_as=name, options=options))
        async with backend._pool.connection(), asyncio.timeout(WAIT_MAX_S):
            await store.sweep()
