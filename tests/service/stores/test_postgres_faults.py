"""Outcomes of operations on PostgreSQL, and its connections, when the network or the server fails."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from contract import one, put, update, value, written
from contract.faults import WRITES, Faults, apply_in_time
from servers.postgres import postgres
from servers.proxy import Connection as ProxyConnection, FaultProxy
from support.postgres_tables import database, new_name, psql
from tableside.core.budget import Budget
from tableside.core.errors import DeadlineExceeded, StoreUnavailable, TableError
from tableside.core.operations import Delete, Get, Record, Written
from tableside.core.store import Scan, Store, TableSpec
from tableside.stores.postgres.schema import quoted

pytestmark = pytest.mark.server

END_OURS = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tableside'"


class TestFaults(Faults):
    @pytest.fixture(autouse=True)
    def _server(self, own_postgres_dsn: str) -> None:
        self.url, self.spec = own_postgres_dsn, TableSpec("t", create=True, stored_as=new_name())

    @asynccontextmanager
    async def opened(self, url: str, connections_max: int) -> AsyncIterator[Store]:
        async with database(url, connections_max=connections_max, connect_timeout_s=1) as backend:
            self.backend = backend
            yield await backend.store(self.spec)

    async def test_without_a_connection_no_operation_is_applied(self, proxy: FaultProxy, store: Store) -> None:
        await store.apply([Get("kept")])
        proxy.cut()
        for operation in [Get("kept"), *WRITES]:  # the read meets the broken connection, so each write needs a new one
            [outcome] = await apply_in_time(store, [operation])
            assert isinstance(outcome, StoreUnavailable)
            assert (outcome.applied, outcome.retriable) == ("no", True)
        with pytest.raises(StoreUnavailable):
            await store.scan(Scan(10))
        with pytest.raises(StoreUnavailable):
            await self.backend.ping()

    async def test_a_read_is_retried_once_on_a_new_connection(self, proxy: FaultProxy, store: Store) -> None:
        proxy.answer_lost(once=True)
        assert isinstance(await one(store, Get("kept")), Record)

    @pytest.mark.parametrize(("keys", "unknown"), [("a", {0, 1}), ("ab", {1})], ids=["a statement", "a transaction"])
    async def test_an_update_with_a_lost_response_is_unknown_once_it_was_sent(
        self,
        proxy: FaultProxy,
        store: Store,
        direct: Store,
        keys: str,
        unknown: set[int],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Lose each response of updates in turn. A statement has no effect while a connection prepares it.

        An update and an insertion are two statements.
        """
        seen = set()
        for lost in range(1, 20):
            await store.apply([put("a", {"n": 0}), Delete("b")])
            with losing_answer(proxy, lost, monkeypatch):
                increments = [update(key, {"$inc": {"n": 1}}, {"n": 0}) for key in keys]
                outcomes = await store.apply(increments, Budget(time.monotonic() + 2))
            applied = [outcome.applied if isinstance(outcome, TableError) else "yes" for outcome in outcomes]
            held = [(await value(direct, key))["n"] if await one(direct, Get(key)) else 0 for key in keys]
            assert len({*zip(applied, held, strict=True)}) == 1
            seen.add((applied[0], held[0]))
            while isinstance(await one(store, put("again")), TableError):  # prepares no update
                await asyncio.sleep(0.05)
        assert seen == {("no", 0), ("yes", 1), *(("unknown", n) for n in unknown)}

    async def test_operations_finished_at_the_deadline_keep_their_outcomes(self, store: Store) -> None:
        """While another tool locks one record, reads succeed and the write of that record does not."""
        table = quoted(self.spec.name_in_store)
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE $1"
        async with psql(self.url) as direct:
            async with direct.transaction():
                await direct.execute(f"UPDATE {table} SET value = value WHERE key = 'kept'")
                read, waited = await apply_in_time(store, [Get("update"), put("kept", {"n": 9})])
                assert isinstance(read, Record)
                assert isinstance(waited, DeadlineExceeded)
                assert waited.applied == "unknown"
                await asyncio.sleep(1.5)
                assert await direct.fetchval(waiting, f"%{table}%") == 0
            assert await value(store, "kept") == {"n": 1}

    async def test_closing_a_backend_ends_while_the_network_hangs(self, proxy: FaultProxy, store: Store) -> None:
        proxy.hang()
        hanging = asyncio.create_task(apply_in_time(store, [Get("kept")]))
        await asyncio.sleep(0)
        async with asyncio.timeout(5):
            await self.backend.close()
            [outcome] = await hanging
        assert isinstance(outcome, DeadlineExceeded)
        proxy.forward()


@contextmanager
def losing_answer(proxy: FaultProxy, number: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Lose every response through the proxy from this number on."""
    answers = itertools.count(1)
    answered = ProxyConnection.answered

    def counted(connection: ProxyConnection, data: bytes) -> None:
        if next(answers) == number:
            proxy.answer_lost()
        answered(connection, data)

    with monkeypatch.context() as patch:
        patch.setattr(ProxyConnection, "answered", counted)
        yield
    proxy.forward()


async def test_a_restarted_server_is_used_again(tmp_path: Path) -> None:
    with postgres(tmp_path) as dsn:
        async with database(dsn) as backend, psql(dsn) as direct:
            store = await backend.store(TableSpec("t", create=True))
            await written(store, put("a", {"n": 1}))
            await asyncio.gather(*(one(store, Get("a")) for _ in range(8)))
            await direct.fetch(END_OURS)
            assert isinstance(await one(store, Get("a")), Record)
            await direct.fetch(END_OURS)
            await asyncio.sleep(0.1)
            assert isinstance(await one(store, put("a", {"n": 2})), Written)
