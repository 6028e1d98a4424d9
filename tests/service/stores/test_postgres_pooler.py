"""The PostgreSQL store behind pgbouncer, which shares sessions of the server between clients."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import asyncpg
import httpx
import pytest

from contract import Tokens, put, same, value, written
from servers.pgbouncer import pgbouncer
from servers.postgres import postgres
from service.stores.test_postgres_columns import COLUMNS, Columns
from support.postgres_tables import database, new_name, psql
from support.running import running
from tableside.core.errors import StoreMisconfigured, StoreUnavailable
from tableside.core.store import TableSpec

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def pooler_dsn(postgres_dsn: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with pgbouncer(tmp_path_factory.mktemp("pgbouncer"), postgres_dsn) as dsn:
        yield dsn


class TestColumns(Columns, Tokens):
    """A table of columns with a side table."""

    @pytest.fixture(autouse=True)
    def _server(self, pooler_dsn: str) -> None:
        self.dsn = pooler_dsn


async def test_services_behind_a_pooler_read_and_write_only_their_tables(tmp_path: Path, postgres_dsn: str) -> None:
    """Two services in turn use two sessions. Each session has seen the statements of the other service."""
    tables = "alpha", "beta"
    async with AsyncExitStack() as stack:
        direct = await stack.enter_async_context(psql(postgres_dsn))
        for table in tables:
            await direct.execute(f"CREATE TABLE {table} (key text PRIMARY KEY, value jsonb)")
            await direct.execute(f"INSERT INTO {table} VALUES ('of', jsonb_build_object('table', '{table}'))")
        dsn = stack.enter_context(pgbouncer(tmp_path / "pooler", postgres_dsn, settings={"default_pool_size": "2"}))
        urls = {}
        for table in tables:
            config = tmp_path / f"{table}.yaml"
            config.write_text(f"stores: {{s: {{kind: postgres, dsn: '{dsn}'}}}}\ntables: {{{table}: {{store: s}}}}\n")
            urls[table] = stack.enter_context(running(tmp_path / table, config)).url + f"/v1/tables/{table}/records"
        first, second = [await stack.enter_async_context(unnamed(dsn)) for _ in range(2)]
        await first.execute("BEGIN")
        await read_and_write(urls, "alpha")
        await second.execute("BEGIN")
        await first.execute("COMMIT")
        await read_and_write(urls, "beta")
        await read_and_write(urls, "alpha")
        await first.execute("BEGIN")
        await second.execute("COMMIT")
        await read_and_write(urls, "beta")
        await first.execute("COMMIT")
        for table in tables:
            rows = await direct.fetch(f"SELECT value->>'table' AS t FROM {table}")
            assert [row["t"] for row in rows] == [table] * 2


@asynccontextmanager
async def unnamed(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    """A client of the pooler that prepares no statements."""
    connection = await asyncpg.connect(dsn, statement_cache_size=0)
    try:
        yield connection
    finally:
        await connection.close()


async def read_and_write(urls: dict[str, str], table: str) -> None:
    async with httpx.AsyncClient() as client:
        answer = await client.get(f"{urls[table]}/of")
        assert answer.json() == {"table": table}
        assert (await client.put(f"{urls[table]}/written", json={"table": table})).is_success


@pytest.mark.parametrize("mode", ["transaction", "session"])
async def test_a_pooler_changes_no_form_of_a_value(tmp_path: Path, mode: str) -> None:
    """The role has other parameters, and the service leaves those of the shared sessions as they are."""
    with postgres(tmp_path / "postgres") as server, pgbouncer(tmp_path / "pooler", server, mode=mode) as dsn:
        async with psql(server) as direct:
            await direct.execute("ALTER ROLE postgres SET TimeZone = 'Asia/Tokyo'")
            await direct.execute("ALTER ROLE postgres SET extra_float_digits = -10")
            await direct.execute("CREATE TABLE t (key text PRIMARY KEY, seen timestamptz, took interval, n float8)")
        async with database(dsn) as backend, unnamed(dsn) as other:
            store = await backend.store(TableSpec("t", options=COLUMNS))
            record = {"seen": "2026-11-20T12:00:00+00:00", "took": "P1DT2H", "n": 0.1 + 0.2}
            for _ in range(5):
                await asyncio.gather(*(written(store, put("a", record)) for _ in range(5)))
                assert same(await value(store, "a"), record)
            assert await other.fetchval("SHOW extra_float_digits") == "-10"


async def test_a_pooler_in_statement_mode_is_refused(tmp_path: Path, postgres_dsn: str) -> None:
    with pgbouncer(tmp_path, postgres_dsn, mode="statement") as dsn:
        async with database(dsn) as backend:
            with pytest.raises(StoreMisconfigured, match="statement mode"):
                await backend.store(TableSpec("t", create=True, stored_as=new_name()))


async def test_a_pooler_without_a_server_is_unavailable(tmp_path: Path) -> None:
    with pgbouncer(tmp_path, "postgresql://127.0.0.1:1/db", settings={"query_wait_timeout": "1"}) as dsn:
        async with database(dsn) as backend:
            with pytest.raises(StoreUnavailable, match="the pooler has no connection") as raised:
                await backend.ping()
    assert raised.value.retriable
