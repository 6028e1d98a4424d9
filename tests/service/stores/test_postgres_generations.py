"""Generations in PostgreSQL: tables that cannot be dropped or made, and puts into one that loads."""

import asyncio
import logging
from typing import Any

import asyncpg
import pytest

from contract import COMPOSITE, INTEGERS, STRINGS, put, scanned, value
from support.postgres_tables import database, new_name, role
from tableside.core import values
from tableside.core.batch import Batch
from tableside.core.errors import InvalidOperation
from tableside.core.keys import KeySchema
from tableside.core.operations import Delete, Get, Key, Record, Written
from tableside.core.store import TableSpec
from tableside.stores.postgres.backend import PostgresBackend
from tableside.stores.postgres.schema import quoted
from tableside.stores.postgres.writes import STATEMENT_WRITES_MAX

pytestmark = pytest.mark.server


def spec(name: str, key: KeySchema = STRINGS, **rest: Any) -> TableSpec:
    return TableSpec("t", key, **{"stored_as": name, "create": True, "key_given": key.has_names, **rest})


async def exists(direct: asyncpg.Connection, name: str) -> bool:
    return bool(await direct.fetchval("SELECT to_regclass($1) IS NOT NULL", quoted(name)))


async def test_a_table_that_a_view_needs_is_emptied(backend: PostgresBackend, direct: asyncpg.Connection) -> None:
    name = new_name()
    store = await backend.store(spec(name))
    await store.apply([put(f"{at}") for at in range(30)])
    await direct.execute(f"CREATE VIEW {quoted(name + 'v')} AS SELECT * FROM {quoted(name)}")
    await store.drop()
    assert await direct.fetchval(f"SELECT count(*) FROM {quoted(name + 'v')}") == 0
    await direct.execute(f"DROP VIEW {quoted(name + 'v')}")
    await store.drop()
    assert not await exists(direct, name)


async def test_a_table_of_another_role_is_emptied(postgres_dsn: str, direct: asyncpg.Connection) -> None:
    name = new_name()
    await direct.execute(f"CREATE TABLE {quoted(name)} (key text PRIMARY KEY, value jsonb)")
    rights = f"SELECT, INSERT, UPDATE, DELETE ON {quoted(name)}"
    async with role(postgres_dsn, rights) as dsn, database(dsn) as backend:
        store = await backend.store(spec(name))
        await store.apply([put("a"), put("b")])
        await store.drop()
        assert await direct.fetchval(f"SELECT count(*) FROM {quoted(name)}") == 0


async def test_a_dropped_table_is_no_longer_swept(postgres_dsn: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with database(postgres_dsn, sweep_every_s=0.05) as backend:
        store = await backend.store(spec(new_name()))
        await store.drop()
        await asyncio.sleep(0.2)  # Sweeps fail.
        del store
        await asyncio.sleep(0.5)  # The last sweep ends.
        caplog.clear()
        await asyncio.sleep(0.5)
    assert not caplog.records


LOADED: dict[str, tuple[KeySchema, list[Key]]] = {
    "strings": (STRINGS, [f"{at:05}" for at in range(STATEMENT_WRITES_MAX + 10)]),
    "integers": (INTEGERS, [*range(-5, 5)]),
    "composite": (COMPOSITE, [(f"u{at % 3}", at) for at in range(20)]),
}


@pytest.mark.parametrize("keys", LOADED)
async def test_puts_load_new_records_and_replace_others(backend: PostgresBackend, keys: str) -> None:
    schema, loaded = LOADED[keys]
    store = await backend.store(spec(new_name(), schema, generation=2, loading=True))
    for turn in range(3):  # the third batch finds half of its records
        if turn == 2:
            await store.apply([Delete(key) for key in loaded[::2]])
        outcomes = await store.apply(Batch.of([put(key, {"n": turn, "ü": "a'\\"}) for key in loaded]))
        found = await store.apply([Get(key) for key in loaded])
        for one, outcome in zip(found, outcomes, strict=True):
            assert isinstance(one, Record)
            assert isinstance(outcome, Written)
            assert (one.etag, values.decode(one.value)) == (outcome.etag, {"n": turn, "ü": "a'\\"})
    assert {*await scanned(store, limit=1000)} == {*loaded}


async def test_a_record_that_cannot_be_loaded_fails_alone(backend: PostgresBackend, direct: asyncpg.Connection) -> None:
    name = new_name()
    store = await backend.store(spec(name, generation=2, loading=True, ttl_s=600))
    await direct.execute(f"ALTER TABLE {quoted(name + '_ts_2')} ADD CHECK (value->>'n' <> '2')")
    batch = Batch.of([put("a", {"n": 1}), put("b", {"n": 2}), put("c", {"n": 3}, ttl_s=5)])
    first, second, third = await store.apply(batch)
    assert isinstance(second, InvalidOperation)
    assert (await value(store, "a"), await value(store, "c")) == ({"n": 1}, {"n": 3})
    assert isinstance(first, Written)
    assert isinstance(third, Written)
    assert first.expires_ms - third.expires_ms == pytest.approx(595_000, abs=60_000)
