"""Tables of PostgreSQL whose columns change while the service runs, and columns that it adds."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from contract import freed_at_once, one, put, same, scanned, update, value, written
from service.stores.test_postgres_columns import COLUMNS
from support.postgres_tables import database, new_name, psql
from tableside.core import values
from tableside.core.errors import InvalidOperation, TableError, TableNotFound, Unsupported
from tableside.core.operations import Delete, Get, Operation, Record, Token
from tableside.core.store import Scan, TableSpec
from tableside.stores.postgres import schema
from tableside.stores.postgres.backend import PostgresBackend
from tableside.stores.postgres.schema import quoted
from tableside.stores.postgres.store import PostgresStore

pytestmark = pytest.mark.server


class Migrated:
    """A table with the columns key, n and word, one record, and an open store whose statements are prepared."""

    def __init__(self, store: PostgresStore, direct: asyncpg.Connection) -> None:
        self.store = store
        self._direct = direct

    async def alter(self, change: str) -> None:
        """Execute ALTER TABLE."""
        await self._direct.execute(f"ALTER TABLE {quoted(self.store.spec.name_in_store)} {change}")

    async def set(self, assignments: str) -> None:
        """Change the record as another tool does."""
        await self._direct.execute(f"UPDATE {quoted(self.store.spec.name_in_store)} SET {assignments}")

    async def use(self) -> None:
        """Read, write and scan in every way."""
        for number in range(2):
            await written(self.store, put("a", {"n": 1, "word": "w"}))
            await written(self.store, update("a", {"$inc": {"n": 1}}))
            await written(self.store, put("b", {"n": number}, if_absent=not number))
            await self.store.apply([update(key, {"n": 1}, {}) for key in ("a", "b")])
            assert isinstance(await one(self.store, Get("a")), Record)
            assert len(await scanned(self.store)) == 2
        await written(self.store, put("a", {"n": 1, "word": "w"}))


@pytest.fixture(params=[False, True], ids=["alone", "with a side table"])
async def migrated(postgres_dsn: str, request: pytest.FixtureRequest) -> AsyncIterator[Migrated]:
    name = new_name()
    async with database(postgres_dsn, connections_max=2) as backend, psql(postgres_dsn) as direct:
        await direct.execute(f"CREATE TABLE {quoted(name)} (key text PRIMARY KEY, n integer, word varchar(3))")
        store = await backend.store(TableSpec("t", stored_as=name, create=request.param, options=COLUMNS))
        found = Migrated(store, direct)
        await found.use()
        yield found


async def rejected(store: PostgresStore, operation: Operation, kind: type[TableError]) -> str:
    """Return the detail of an operation's error."""
    outcome = await one(store, operation)
    assert isinstance(outcome, kind)
    return outcome.detail


async def test_an_added_column_is_read_and_written(migrated: Migrated) -> None:
    await migrated.alter("ADD COLUMN more jsonb DEFAULT '[1]'")
    assert same(await value(migrated.store, "a"), {"n": 1, "word": "w", "more": [1]})
    await migrated.alter("ADD COLUMN other text")
    await migrated.set("other = 'o'")
    page = await migrated.store.scan(Scan(10))
    assert same(values.decode(dict(page.records)["a"].value), {"n": 1, "word": "w", "more": [1], "other": "o"})
    await migrated.alter("ADD COLUMN third text")
    await written(migrated.store, put("a", {"n": 2, "third": "t"}))
    assert same(await value(migrated.store, "a"), {"n": 2, "third": "t"})


async def test_a_dropped_column_is_unknown(migrated: Migrated) -> None:
    await migrated.alter("DROP COLUMN word")
    assert same(await value(migrated.store, "a"), {"n": 1})
    await written(migrated.store, put("a", {"n": 2}))
    await written(migrated.store, update("a", {"$inc": {"n": 1}}))
    assert "`word`" in await rejected(migrated.store, put("a", {"word": "x"}), InvalidOperation)
    assert len(await scanned(migrated.store)) == 2


@pytest.mark.parametrize(
    ("change", "member"),
    [
        ("n TYPE bigint", {"n": 2**40}),
        ("n TYPE text", {"n": "ten"}),
        ("n TYPE jsonb USING to_jsonb(n)", {"n": {"deep": [1]}}),
        ("n TYPE timestamptz USING to_timestamp(n)", {"n": "2026-11-20T12:00:00+00:00"}),
        ("word TYPE varchar(20)", {"word": "a longer word"}),
    ],
)
async def test_a_retyped_column_takes_values_of_its_new_type(
    migrated: Migrated, change: str, member: dict[str, Any]
) -> None:
    await migrated.alter(f"ALTER COLUMN {change}")
    await written(migrated.store, put("a", member))
    assert same(await value(migrated.store, "a"), member)
    await written(migrated.store, update("b", member))
    assert len(await scanned(migrated.store)) == 2


async def test_a_table_without_its_key_or_its_name_is_an_error_until_it_is_back(migrated: Migrated) -> None:
    name = quoted(migrated.store.spec.name_in_store)
    await migrated.alter("RENAME COLUMN key TO id")
    for operation in (Get("a"), put("a", {"n": 1})):
        assert "restart" in await rejected(migrated.store, operation, Unsupported)
    assert freed_at_once([*await migrated.store.apply([Get("a"), Get("b")])])
    await migrated.alter("RENAME COLUMN id TO key")
    await migrated._direct.execute(f'ALTER TABLE {name} RENAME TO {name[:-1]}.old"')
    await rejected(migrated.store, Get("a"), TableNotFound)
    await migrated._direct.execute(f'ALTER TABLE {name[:-1]}.old" RENAME TO {name}')
    await written(migrated.store, put("a", {"n": 7}))
    assert same(await value(migrated.store, "a"), {"n": 7})


async def test_documents_follow_columns_that_they_gain_and_lose(postgres_dsn: str) -> None:
    name = new_name()
    async with database(postgres_dsn) as backend, psql(postgres_dsn) as direct:
        await direct.execute(f"CREATE TABLE {quoted(name)} (key text PRIMARY KEY, value jsonb, note text)")
        store = await backend.store(TableSpec("t", stored_as=name))
        await written(store, put("a", {"n": 1}))
        assert isinstance(await one(store, Get("a")), Record)
        await direct.execute(f"ALTER TABLE {quoted(name)} ADD COLUMN _ts_expires bigint, ADD COLUMN _ts_writers jsonb")
        assert same(await value(store, "a"), {"n": 1})
        assert store.capabilities.tokens
        await written(store, put("a", {"n": 2}, token=Token("w", 1)))
        await direct.execute(f"ALTER TABLE {quoted(name)} DROP COLUMN _ts_writers, DROP COLUMN note")
        await written(store, update("a", {"$inc": {"n": 1}}))
        assert same(await value(store, "a"), {"n": 3})
        await direct.execute(f"ALTER TABLE {quoted(name)} ALTER COLUMN value TYPE text")
        assert "jsonb" in await rejected(store, put("a", {"n": 3}), Unsupported)


@pytest.mark.parametrize("present", ["", ", _ts_expires bigint", ", _ts_writers jsonb"])
async def test_create_adds_the_columns_that_a_table_of_documents_lacks(
    backend: PostgresBackend, direct: asyncpg.Connection, present: str
) -> None:
    name = new_name()
    await direct.execute(f"CREATE TABLE {quoted(name)} (key text PRIMARY KEY, value jsonb{present})")
    await direct.execute(f"""INSERT INTO {quoted(name)} (key, value) VALUES ('a', '{{"n": 1}}')""")
    spec = TableSpec("t", stored_as=name, create=True)
    for store in await asyncio.gather(*(backend.store(spec) for _ in range(4))):
        assert (store.capabilities.tokens, store.capabilities.ttl) == (True, True)
        await written(store, update("a", {"m": 2}, order=5, ttl_s=1000))
        assert (await written(store, Delete("a", order=4))).etag
        assert same(await value(store, "a"), {"m": 2})


@pytest.mark.parametrize("obstacle", ["a transaction", "another owner"])
async def test_a_table_whose_columns_cannot_be_added_is_used_as_it_is(
    postgres_dsn: str, direct: asyncpg.Connection, obstacle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "LOCK_WAIT_MAX_S", 0.2)
    name = new_name()
    await direct.execute(f"""
        CREATE TABLE {quoted(name)} (key text PRIMARY KEY, value jsonb); CREATE ROLE other LOGIN;
        GRANT ALL ON {quoted(name)} TO other""")
    user = "postgres@" if obstacle == "a transaction" else "other@"
    async with direct.transaction(), database(postgres_dsn.replace("postgres@", user)) as backend:
        if obstacle == "a transaction":
            await direct.execute(f"SELECT FROM {quoted(name)}")
        store = await backend.store(TableSpec("t", stored_as=name, create=True))
        await written(store, put("a", {"n": 1}))
        assert not store.capabilities.tokens
    await direct.execute(f"REVOKE ALL ON {quoted(name)} FROM other; DROP ROLE other")
