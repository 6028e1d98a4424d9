"""What the PostgreSQL store remembers of ordered writes across deletes, expiry and sweeps."""

import random
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from contract import Time, put, same, update, written
from support.postgres_tables import database, new_name
from tableside.core import values
from tableside.core.operations import Delete, Get, Operation, Outcome, Record, Written
from tableside.core.store import Store, TableSpec
from tableside.stores.memory import MemoryStore
from tableside.stores.postgres.backend import PostgresBackend, PostgresTableOptions
from tableside.stores.postgres.schema import quoted
from tableside.stores.postgres.store import PostgresStore

pytestmark = pytest.mark.server

MEMORY_S = 100.0
KEYS = "abcdefgh"


class Table:
    """A table with members `n` and `m`, whose clock only tests advance."""

    def __init__(self, backend: PostgresBackend, direct: asyncpg.Connection, layout: str, time: Time) -> None:
        self.time = time
        self._backend = backend
        self._direct = direct
        self._name = new_name()
        self._is_document = layout == "document"
        options = PostgresTableOptions.model_validate({"layout": layout})
        self.spec = TableSpec("t", stored_as=self._name, create=True, options=options, delete_memory_s=MEMORY_S)

    async def opened(self) -> PostgresStore:
        if not self._is_document:
            await self._direct.execute(f"CREATE TABLE {quoted(self._name)} (key text PRIMARY KEY, n bigint, m bigint)")
        return await self._backend.store(self.spec)

    async def remembered(self) -> dict[str, str | None]:
        """Return the text of `_ts_writers` of each key."""
        table = self._name if self._is_document else "_ts_" + self._name
        rows = await self._direct.fetch(f"SELECT key, _ts_writers::text AS writers FROM {quoted(table)}")
        return {row["key"]: row["writers"] for row in rows}

    async def rows(self) -> set[str]:
        """Return the keys of the rows with a value."""
        where = "WHERE value IS NOT NULL" if self._is_document else ""
        return {row["key"] for row in await self._direct.fetch(f"SELECT key FROM {quoted(self._name)} {where}")}


@pytest.fixture(params=["document", "columns"])
async def table(request: pytest.FixtureRequest, postgres_dsn: str, direct: asyncpg.Connection) -> AsyncIterator[Table]:
    time = Time(real=False)
    async with database(postgres_dsn, time) as backend:
        yield Table(backend, direct, request.param, time)


async def test_a_sweep_keeps_the_orders_of_expired_records(table: Table) -> None:
    store = await table.opened()
    await store.apply([put("a", {"n": 1}, order=5, ttl_s=10), put("b", {"n": 1}, ttl_s=10), put("c", {}, order=5)])
    await table.time.passes(10)
    await store.sweep()
    assert await table.rows() == {"c"}
    assert "a" in await table.remembered()
    await table.time.passes(MEMORY_S - 1)
    await store.sweep()
    assert (await written(store, update("a", {"n": 2}, order=4))).superseded
    await table.time.passes(1)
    await store.sweep()
    assert (await table.remembered()).keys() == {"c"}
    await written(store, Delete("c"))
    assert "c" in await table.remembered()
    await written(store, Delete("c", forget=True))
    assert await table.remembered() == {}


async def test_batches_and_sweeps_remember_what_single_steps_do(table: Table) -> None:
    store, draw = await table.opened(), random.Random(7)
    model = MemoryStore(table.spec, table.time.now_ms)
    for _ in range(300):
        operations = [written_at_random(key, draw) for key in draw.sample(KEYS, draw.randint(1, len(KEYS)))]
        expected = await model.apply(operations)
        found = await store.apply(operations)
        assert [*map(without_etag, found)] == [*map(without_etag, expected)], operations
        await table.time.passes(draw.choice([0, 0, 1, 20, MEMORY_S]))
        if draw.random() < 0.3:
            await store.sweep()
        await compare(store, model)


def written_at_random(key: str, draw: random.Random) -> Operation:
    members = {name: draw.randint(0, 9) for name in draw.sample("nm", draw.randint(0, 2))}
    rest: dict[str, Any] = {"order": draw.choice([None, draw.randint(-5, 20)])}
    kind = draw.choice(["put", "put", "update", "delete", "delete"])
    if kind == "delete":
        return Delete(key, forget=draw.random() < 0.1) if rest["order"] is None else Delete(key, **rest)
    rest["ttl_s"] = draw.choice([None, None, 10.0, 30.0, -1])
    return put(key, members, **rest) if kind == "put" else update(key, members or {"n": None}, **rest)


def without_etag(outcome: Outcome) -> object:
    if isinstance(outcome, Written):
        return outcome.etag is None, outcome.created, outcome.superseded, outcome.expires_ms
    return (outcome.value, outcome.expires_ms) if isinstance(outcome, Record) else type(outcome)


async def compare(store: Store, model: Store) -> None:
    gets = [Get(key) for key in KEYS]
    for found, expected in zip(await store.apply(gets), await model.apply(gets), strict=True):
        assert (found is None) == (expected is None)
        if isinstance(found, Record) and isinstance(expected, Record):
            assert found.expires_ms == expected.expires_ms
            assert same(values.decode(found.value), values.decode(expected.value))
