"""The PostgreSQL store when another server becomes the primary while the old one still answers."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest

from contract import one, put, value, written
from servers.postgres import postgres, standby
from servers.proxy import FaultProxy, address
from support.postgres_tables import database, psql
from support.waiting import WAIT_MAX_S, eventually
from tableside.core.budget import Budget
from tableside.core.errors import StoreUnavailable, TableError, WritesRejected
from tableside.core.operations import Delete, Get, Record, Token
from tableside.core.store import TableSpec
from tableside.stores.postgres import backend as postgres_backend, connections
from tableside.stores.postgres.backend import PostgresBackend
from tableside.stores.postgres.store import PostgresStore

pytestmark = pytest.mark.server

SPEC = TableSpec("t", create=True)
MORE = [put(f"more {index}", {"n": 2}, if_absent=True) for index in range(3)]
READ_ONLY = "ALTER SYSTEM SET default_transaction_read_only = on"


@dataclass(frozen=True)
class Servers:
    """A primary and its standby, as connection strings."""

    old: str
    new: str

    @property
    def both(self) -> str:
        """A connection string with both hosts, the old primary first."""
        old, new = urlsplit(self.old), urlsplit(self.new)
        return f"postgresql://{old.netloc},{new.hostname}:{new.port}/postgres?target_session_attrs=read-write"

    async def promote(self) -> None:
        """Promote the standby, and let the old primary accept no writes any more."""
        async with psql(self.old) as old, psql(self.new) as new:
            await replicated(old, new)
            assert await new.fetchval("SELECT pg_promote()")
            await new.execute(f"{READ_ONLY.partition('=')[0]}= off")  # a copy of the primary's setting
            await old.execute(READ_ONLY)
            await old.execute("SELECT pg_reload_conf()")
        async with psql(self.old) as old:
            while await old.fetchval("SHOW default_transaction_read_only") != "on":
                await asyncio.sleep(0.01)


async def replicated(old: asyncpg.Connection, new: asyncpg.Connection) -> None:
    """Wait until the standby has everything that the primary has written."""
    written_until = await old.fetchval("SELECT pg_current_wal_lsn()::text")
    while not await new.fetchval("SELECT pg_last_wal_replay_lsn() >= $1::text::pg_lsn", written_until):
        await asyncio.sleep(0.01)


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    with postgres(tmp_path / "old") as old, standby(tmp_path / "new", old) as new:
        yield Servers(old, new)


@asynccontextmanager
async def opened(dsn: str, connections: int = 4) -> AsyncIterator[tuple[PostgresBackend, PostgresStore]]:
    """A store, and a backend whose connections are all open and idle."""
    async with database(dsn, connections_max=connections) as backend:
        store = await backend.store(SPEC)
        await written(store, put("a", {"n": 1}))
        await asyncio.gather(*(one(store, Get("a")) for _ in range(connections)))
        assert backend.connections().open == connections
        yield backend, store


async def test_writes_find_the_new_primary_at_once(servers: Servers) -> None:
    """Each kind of write finds connections to the old primary, at the same time as the others."""
    writes = [put("a", {"n": 2}), put("b", {"n": 2}, token=Token("w", 1)), put("c", {"n": 2}, if_absent=True)]
    async with opened(servers.both) as (backend, store), psql(servers.new) as new:
        await servers.promote()
        started = time.monotonic()
        await asyncio.gather(*(written(store, write) for write in writes), store.apply([Delete("x"), *MORE]))
        assert time.monotonic() - started < 2
        assert await new.fetchval("SELECT count(*) FROM t WHERE value->>'n' = '2'") == 3 + len(MORE)
        await backend.ping()


async def test_reads_and_probes_leave_a_server_that_has_become_read_only(servers: Servers) -> None:
    """The first answer of the old server shows its role. All later reads go to the new one."""
    async with opened(servers.both) as (backend, store), psql(servers.new) as new:
        await servers.promote()
        await new.execute("UPDATE t SET value = '{\"n\": 2}'")
        await backend.ping()
        for _ in range(8):
            assert await value(store, "a") == {"n": 2}


async def test_a_write_follows_an_address_that_moves_to_the_new_primary(servers: Servers) -> None:
    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(FaultProxy.before(servers.old))
        _, store = await stack.enter_async_context(opened(proxy.through(servers.old)))
        await servers.promote()
        proxy.server = address(servers.new)
        await written(store, put("a", {"n": 2}))
        for _ in range(8):
            assert await value(store, "a") == {"n": 2}
        async with psql(servers.new) as direct:
            assert await direct.fetchval("SELECT value->>'n' FROM t") == "2"


async def test_without_a_primary_operations_say_so_and_later_recover(servers: Servers) -> None:
    async with opened(servers.both) as (backend, store), psql(servers.old) as old:
        await old.execute(READ_ONLY)
        await old.execute("SELECT pg_reload_conf()")
        await asyncio.sleep(0.2)
        outcome = await one(store, put("a", {"n": 2}))
        assert isinstance(outcome, StoreUnavailable)
        assert outcome.retriable
        with pytest.raises(StoreUnavailable, match="target_session_attrs"):
            await backend.ping()
        await servers.promote()
        await written(store, put("a", {"n": 2}))
        await backend.ping()


async def test_a_primary_that_hangs_is_left(servers: Servers) -> None:
    """Connections to it and attempts to open one are given up, also if each operation ends before they time out."""
    async with FaultProxy.before(servers.old) as proxy:
        both = f"postgresql://postgres@127.0.0.1:{proxy.port},127.0.0.1:{address(servers.new)[1]}/postgres"
        async with opened(f"{both}?target_session_attrs=read-write", connections=20) as (_, store):
            proxy.hang()
            await servers.promote()
            started = time.monotonic()
            while isinstance((await store.apply([put("a", {"n": 2})], Budget(time.monotonic() + 0.3)))[0], TableError):
                assert time.monotonic() - started < 4
            async with psql(servers.new) as direct:
                assert await direct.fetchval("SELECT value->>'n' FROM t") == "2"
        proxy.forward()


async def test_a_read_only_server_keeps_its_connections(servers: Servers) -> None:
    async with opened(servers.old, connections=1), FaultProxy.before(servers.new) as proxy:
        async with psql(servers.old) as old, psql(servers.new) as standing_by:
            await replicated(old, standing_by)
        async with database(proxy.through(servers.new), connections_max=2) as backend:
            store = await backend.store(SPEC)
            for _ in range(5):
                assert isinstance(await one(store, put("a", {"n": 2})), WritesRejected)
                assert isinstance(await one(store, Get("a")), Record)
            assert proxy.connections_total == 1


async def test_a_connection_ends_at_its_maximum_age_even_if_it_is_in_use(postgres_dsn: str) -> None:
    async with (
        FaultProxy.before(postgres_dsn) as proxy,
        database(proxy.through(postgres_dsn), connections_max=1, connection_age_max_s=0.2) as backend,
        asyncio.timeout(WAIT_MAX_S),
    ):
        while proxy.connections_total < 3:
            await backend.ping()
            await asyncio.sleep(0.01)
            assert proxy.open_connections <= 1


async def test_connections_above_the_minimum_close_when_they_are_idle(
    own_postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "IDLE_MAX_S", 1.0)
    monkeypatch.setattr(postgres_backend, "POOL_MAINTENANCE_EVERY_S", 0.05)
    async with database(own_postgres_dsn, connections_min=2) as backend:
        await asyncio.gather(*(backend.ping() for _ in range(4)))
        assert backend.connections().open >= 4
        await eventually(lambda: backend.connections().open == 2)
