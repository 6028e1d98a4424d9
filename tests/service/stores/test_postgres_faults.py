"""Outcomes of operations on PostgreSQL, and its connections, when the network or the server fails."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from contract import one, put, update, value, written
from servers.postgres import postgres
from servers.proxy import Connection as ProxyConnection, FaultProxy
from support.postgres_tables import database, new_name, psql
from tableside.core.budget import Budget
from tableside.core.errors import DeadlineExceeded, StoreUnavailable, TableError
from tableside.core.operations import Delete, Get, Operation, Outcome, Record, Token, Written
from tableside.core.store import Scan, TableSpec
from tableside.stores.postgres.backend import PostgresBackend
from tableside.stores.postgres.schema import quoted
from tableside.stores.postgres.store import PostgresStore

pytestmark = pytest.mark.server

DEADLINE_S = 0.4
END_OURS = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tableside'"


@pytest.fixture(scope="module")
def postgres_dsn(own_postgres_dsn: str) -> str:
    return own_postgres_dsn


class Behind:
    """A store behind a proxy, and a direct connection to the server."""

    def __init__(
        self, proxy: FaultProxy, backend: PostgresBackend, store: PostgresStore, direct: asyncpg.Connection
    ) -> None:
        self.proxy = proxy
        self.backend = backend
        self.store = store
        self.direct = direct

    async def apply(self, *operations: Operation, deadline_s: float = DEADLINE_S) -> Sequence[Outcome]:
        """Apply operations, and check that the outcomes arrive before the deadline."""
        started = time.monotonic()
        until = asyncio.get_running_loop().time() + deadline_s
        outcomes = await asyncio.wait_for(self.store.apply(operations, Budget(until)), deadline_s + 5)
        assert time.monotonic() - started < deadline_s + 0.25
        return outcomes

    async def held(self) -> dict[str, Any]:
        """Return the records that the table contains, read over the direct connection."""
        table = quoted(self.store.spec.name_in_store)
        rows = await self.direct.fetch(f"SELECT key, value->>'n' AS n FROM {table} WHERE value IS NOT NULL")
        return {row["key"]: int(row["n"]) for row in rows}

    async def recovers(self) -> None:
        """Check that the store recovers within seconds, without intervention."""
        until = time.monotonic() + 5
        while isinstance((await self.store.apply([put("again", {"n": 1})], Budget(_soon())))[0], TableError):
            assert time.monotonic() < until
            await asyncio.sleep(0.05)
        await self.backend.ping()
        assert await value(self.store, "again") == {"n": 1}


def _soon() -> float:
    return asyncio.get_running_loop().time() + 2


@pytest.fixture
async def behind(postgres_dsn: str) -> AsyncIterator[Behind]:
    async with behind_proxy(postgres_dsn) as found:
        yield found


@asynccontextmanager
async def behind_proxy(dsn: str, **settings: Any) -> AsyncIterator[Behind]:
    async with (
        FaultProxy.before(dsn) as proxy,
        database(proxy.through(dsn), connections_max=4, connect_timeout_s=1, **settings) as backend,
        psql(dsn) as direct,
    ):
        store = await backend.store(TableSpec("t", create=True, stored_as=new_name()))
        await store.apply([put("a", {"n": 1}), put("b", {"n": 1}), put("c", {"n": 1})])
        yield Behind(proxy, backend, store, direct)


WRITES: list[Operation] = [
    put("a", {"n": 2}),
    update("a", {"$inc": {"n": 1}}),
    update("new", {"$inc": {"n": 1}}, {"n": 0}),
    Delete("b"),
    put("a", {"n": 5}, token=Token("w", 1)),
    put("x", {"n": 5}, if_absent=True),
]
EVERY: list[Operation] = [Get("a"), *WRITES]

FAULTS: dict[str, Callable[[FaultProxy], None]] = {
    "cut": FaultProxy.cut,
    "hang": FaultProxy.hang,
    "garbage": FaultProxy.garbage,
    "answer lost": FaultProxy.answer_lost,
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("operation", EVERY, ids=range(len(EVERY)))
async def test_outcomes_are_true_and_in_time_and_it_recovers(behind: Behind, fault: str, operation: Operation) -> None:
    for _ in range(2):
        before = await behind.held()
        FAULTS[fault](behind.proxy)
        [outcome] = await behind.apply(operation)
        assert isinstance(outcome, (StoreUnavailable, DeadlineExceeded)), outcome
        assert outcome.retriable or fault == "garbage", "garbage may look like a server without TLS"
        assert outcome.applied == "no" or not isinstance(operation, Get)
        assert outcome.applied == "unknown" or await behind.held() == before
        behind.proxy.forward()
        await behind.recovers()


async def test_without_a_connection_no_operation_is_applied(behind: Behind) -> None:
    behind.proxy.cut()
    for operation in EVERY:  # the read meets the broken connection, so each write needs a new one
        [outcome] = await behind.apply(operation)
        assert isinstance(outcome, StoreUnavailable)
        assert (outcome.applied, outcome.retriable) == ("no", True)
    with pytest.raises(StoreUnavailable):
        await behind.store.scan(Scan(10))
    with pytest.raises(StoreUnavailable):
        await behind.backend.ping()
    behind.proxy.forward()
    await behind.recovers()


async def test_a_read_is_retried_once_on_a_new_connection(behind: Behind) -> None:
    behind.proxy.answer_lost(once=True)
    [outcome] = await behind.apply(Get("a"), deadline_s=2)
    assert isinstance(outcome, Record)


@pytest.mark.parametrize(("keys", "unknown"), [("a", {0, 1}), ("ab", {1})], ids=["a statement", "a transaction"])
async def test_an_update_with_a_lost_response_is_unknown_once_it_was_sent(
    behind: Behind, keys: str, unknown: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lose each response of updates in turn. A statement has no effect while a connection prepares it.

    An update and an insertion are two statements.
    """
    seen = set()
    for lost in range(1, 20):
        await behind.store.apply([put("a", {"n": 0}), Delete("b")])
        with losing_answer(behind.proxy, lost, monkeypatch):
            outcomes = await behind.apply(*(update(key, {"$inc": {"n": 1}}, {"n": 0}) for key in keys), deadline_s=2)
        held = await behind.held()
        applied = [outcome.applied if isinstance(outcome, TableError) else "yes" for outcome in outcomes]
        assert len({*zip(applied, (held.get(key, 0) for key in keys), strict=True)}) == 1
        seen.add((applied[0], held["a"]))
        await behind.recovers()
    assert seen == {("no", 0), ("yes", 1), *(("unknown", n) for n in unknown)}


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


async def test_operations_finished_at_the_deadline_keep_their_outcomes(behind: Behind) -> None:
    """While another tool locks one record, reads succeed and the write of that record does not."""
    table = quoted(behind.store.spec.name_in_store)
    async with behind.direct.transaction():
        await behind.direct.execute(f"UPDATE {table} SET value = value WHERE key = 'a'")
        outcomes = await behind.apply(Get("a"), put("a", {"n": 9}))
        assert isinstance(outcomes[0], Record)
        assert isinstance(outcomes[1], DeadlineExceeded)
        assert outcomes[1].applied == "unknown"
        [outcome] = await behind.apply(update("a", {"n": 9}))
        assert isinstance(outcome, DeadlineExceeded), "unknown if the deadline passed during an attempt"
        await asyncio.sleep(1.5)
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE $1"
        assert await behind.direct.fetchval(waiting, f"%{table}%") == 0
    assert (await behind.held())["a"] == 1


async def test_faults_leave_no_connections_behind(behind: Behind) -> None:
    for turn in range(6):
        [behind.proxy.cut, behind.proxy.hang, behind.proxy.garbage][turn % 3]()
        operations: list[Operation] = [put("b", {"n": 7}), Get("a"), update("c", {"$inc": {"n": 1}})]
        await asyncio.gather(*(behind.apply(operation) for operation in operations * 4))
        behind.proxy.forward()
        await behind.recovers()
    await asyncio.sleep(1.2)
    assert await connections(behind) <= 4
    assert behind.proxy.open_connections <= 4


async def test_closing_a_backend_ends_while_the_network_hangs(behind: Behind) -> None:
    behind.proxy.hang()
    hanging = asyncio.create_task(behind.apply(Get("a")))
    await asyncio.sleep(0)
    async with asyncio.timeout(5):
        await behind.backend.close()
        [outcome] = await hanging
    assert isinstance(outcome, DeadlineExceeded)
    behind.proxy.forward()


async def connections(behind: Behind) -> int:
    """Return the number of the store's connections that the server reports."""
    ours = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tableside'"
    found: int = await behind.direct.fetchval(ours)
    return found


async def test_cancelled_callers_leave_connections_usable(behind: Behind) -> None:
    table = quoted(behind.store.spec.name_in_store)
    async with behind.direct.transaction():
        await behind.direct.execute(f"LOCK TABLE {table}")
        tasks = [asyncio.create_task(behind.store.scan(Scan(10))) for _ in range(4)]
        tasks += [asyncio.create_task(behind.store.apply([Get("a")])) for _ in range(4)]  # type: ignore[arg-type]
        await asyncio.sleep(0.2)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    await behind.recovers()
    assert behind.proxy.open_connections <= 4


async def test_a_server_that_is_down_at_start_is_used_later(tmp_path: Path, postgres_dsn: str) -> None:
    async with FaultProxy.before(postgres_dsn) as proxy:
        proxy.cut()
        async with database(proxy.through(postgres_dsn), connections_min=2) as backend:
            for _ in range(2):
                with pytest.raises(StoreUnavailable):
                    await backend.store(TableSpec("t", create=True, stored_as="later"))
                with pytest.raises(StoreUnavailable):
                    await backend.ping()
                with pytest.raises(StoreUnavailable):
                    await backend.tables()
            proxy.forward()
            store = await backend.store(TableSpec("t", create=True, stored_as="later"))
            await written(store, put("a", {"n": 1}))


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
