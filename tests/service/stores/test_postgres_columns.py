"""The shared suite on the PostgreSQL store with tables of columns, with and without a side table, and types."""

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import pytest

from contract import (
    Basics,
    KeysAndValues,
    Orders,
    Preconditions,
    Scans,
    StoreContract,
    Time,
    Tokens,
    Updates,
    etag,
    one,
    put,
    record,
    refused,
    same,
    scanned,
    update,
    value,
    written,
)
from contract.opening import Opens
from support.postgres_tables import database, new_name, psql
from tableside.core.errors import InvalidOperation, RecordNotFound, TableError, TableNotFound, Unsupported
from tableside.core.keys import KeyField, KeySchema
from tableside.core.operations import Delete, Get, Operation, Token
from tableside.core.store import Store, TableSpec
from tableside.stores.postgres import reads
from tableside.stores.postgres.backend import PostgresBackend, PostgresTableOptions
from tableside.stores.postgres.schema import quoted

COLUMNS = PostgresTableOptions(layout="columns")

MEMBERS = [
    *"abcdhiklmnprstuwxyz", "kept", "gone", "word", "big", "list", "seen", "member", "made", "rich", "long", "full",
    "one", "half", "deep", *(f"m{index}" for index in range(64)), "a.b", " ", "ü", "🛫", "$", "#", ":", "key", "value",
    "etag", "ttl", "x_ts", "%", "$schema", "$set", "$ref", "$n", "$gone", '"', "'", "\\", "\n", "N",
    "first", "log", "tags", 'it\'s "#x"', "_t", "'\"\\",
]  # fmt: skip
"""The names of all members in the shared suite: each is a column that accepts any JSON."""


class Columns(Opens):
    side = True

    @pytest.fixture(autouse=True)
    def _server(self, postgres_dsn: str) -> None:
        self.dsn = postgres_dsn

    @asynccontextmanager
    async def opened(self, spec: TableSpec, time: Time, directory: Path) -> AsyncIterator[Store]:
        name = new_name()
        await make(self.dsn, name, spec)
        async with database(self.dsn, time) as backend:
            yield await backend.store(msgspec.structs.replace(spec, create=self.side, stored_as=name, options=COLUMNS))


class TestColumns(Columns, StoreContract):
    """The complete contract."""

    async def test_a_thousand_members_may_be_newer_than_the_newest_put(self, store: Store) -> None:
        pytest.skip("a row of PostgreSQL does not have room for a thousand columns of JSON")


@pytest.mark.daily
class TestColumnsAlone(Columns, Basics, KeysAndValues, Updates, Preconditions, Scans):
    """Without a side table: no tokens, no orders, no expiry."""

    side = False
    test_a_store_without_tokens_rejects_them = Tokens.test_a_store_without_tokens_rejects_them
    test_a_store_without_tokens_rejects_orders = Orders.test_a_store_without_tokens_rejects_orders


async def make(dsn: str, name: str, spec: TableSpec) -> None:
    types = {"string": 'text COLLATE "C"', "integer": "bigint"}
    keys = {field.name or "the key": types[field.type] for field in spec.key.fields}
    columns = {**dict.fromkeys(MEMBERS, "jsonb"), **keys}
    defined = ", ".join(f"{quoted(column)} {kind}" for column, kind in columns.items())
    primary = ", ".join(map(quoted, keys))
    async with psql(dsn) as connection:
        await connection.execute(f"CREATE TABLE {quoted(name)} ({defined}, PRIMARY KEY ({primary}))")


def spec(name: str, **rest: Any) -> TableSpec:
    return TableSpec("t", **{"stored_as": name, "options": COLUMNS, **rest})


async def test_a_null_is_json_null_in_a_json_column_and_absence_elsewhere(
    backend: PostgresBackend, direct: asyncpg.Connection
) -> None:
    name = new_name()
    columns = "id text PRIMARY KEY, a jsonb NOT NULL, b json, c jsonb, d text, e jsonb[]"
    await direct.execute(f"CREATE TABLE {quoted(name)} ({columns})")
    store = await backend.store(spec(name))
    await written(store, put("x", {"a": None, "b": None, "d": None, "e": None}))
    assert same(await value(store, "x"), {"a": None, "b": None})
    row = await direct.fetchrow(f"SELECT a::text, b::text, c IS NULL, d IS NULL, e IS NULL FROM {quoted(name)}")
    assert row is not None
    assert [*row.values()] == ["null", "null", True, True, True]
    assert refused(await one(store, put("y", {"b": 1})), InvalidOperation)


async def test_a_uuid_key_has_one_form(backend: PostgresBackend, direct: asyncpg.Connection) -> None:
    name, key = new_name(), "0f0e0d0c-0b0a-4908-8706-050403020100"
    await direct.execute(f"CREATE TABLE {quoted(name)} (id uuid PRIMARY KEY, n integer)")
    store = await backend.store(spec(name))
    for wrong in (key.upper(), key.replace("-", ""), f"{{{key}}}", "x", ""):
        for operation in (Get(wrong), put(wrong, {"n": 1}), Delete(wrong)):
            assert refused(await one(store, operation), InvalidOperation)
    await store.apply([put(str(uuid.UUID(int=index)), {"n": 1}) for index in range(30)])
    found = await scanned(store, prefix="00000000-0000-0000-0000-00000000001")
    assert found == [str(uuid.UUID(int=index)) for index in range(16, 30)]
    parts = await store.splits(3)
    assert len([key for part in parts for key in await scanned(store, split=part)]) == 30


async def test_the_key_follows_the_existing_table(backend: PostgresBackend, direct: asyncpg.Connection) -> None:
    name = new_name()
    columns = "n int, day int, who varchar(20), code text NOT NULL UNIQUE, PRIMARY KEY (who, day)"
    await direct.execute(f"CREATE TABLE {quoted(name)} ({columns})")
    store = await backend.store(spec(name))
    assert store.spec.key == KeySchema((KeyField("who", "string"), KeyField("day", "integer")))
    await written(store, put(("a", 1), {"n": 1, "code": "x"}))
    other = await backend.store(spec(name, key=KeySchema((KeyField("code", "string"),)), key_given=True))
    assert same(await value(other, "x"), {"n": 1, "who": "a", "day": 1})
    assert refused(await one(store, put(("a", 2**40), {"code": "y"})), InvalidOperation)
    assert await one(store, Get(("a", 2**40))) is None
    assert refused(await one(store, put(("b", 2), {"code": "x"})), InvalidOperation)


@pytest.mark.parametrize(
    ("sql", "key"),
    [
        ("CREATE TABLE {} (a text, n int)", None),
        ("CREATE TABLE {} (a text PRIMARY KEY, n int)", ("n", "integer")),
        ("CREATE TABLE {} (a text PRIMARY KEY, n int)", ("x", "string")),
        ("CREATE TABLE {} (a double precision PRIMARY KEY, n int)", None),
        ("CREATE VIEW {} AS SELECT 1 AS a", None),
        ("CREATE TABLE {} (a text COLLATE odd PRIMARY KEY)", None),
    ],
)
async def test_a_table_without_a_suitable_key_is_rejected(
    backend: PostgresBackend, direct: asyncpg.Connection, sql: str, key: tuple[str, Any] | None
) -> None:
    name = new_name()
    odd = "CREATE COLLATION IF NOT EXISTS odd (provider = icu, locale = 'und', deterministic = false)"
    await direct.execute(odd)
    await direct.execute(sql.format(quoted(name)))
    given: dict[str, Any] = {"key": KeySchema((KeyField(*key),)), "key_given": True} if key else {}
    with pytest.raises(Unsupported):
        await backend.store(spec(name, **given))


async def test_a_table_of_columns_is_not_created(backend: PostgresBackend) -> None:
    with pytest.raises(TableNotFound):
        await backend.store(spec("absent", create=True))


CONSTRAINED = """
DROP TABLE IF EXISTS {table};
CREATE TABLE {table} (
    id text PRIMARY KEY, n int, other text REFERENCES {table} DEFERRABLE INITIALLY DEFERRED, word text,
    CONSTRAINT small CHECK (n < 10), CONSTRAINT single UNIQUE (word)
);
CREATE OR REPLACE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS
$$BEGIN IF new.n = 7 THEN RAISE 'secret'; END IF; IF new.n = 8 THEN RETURN NULL; END IF; RETURN new; END$$;
CREATE TRIGGER no BEFORE INSERT OR UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION no()
"""


@pytest.mark.parametrize("create", [False, True], ids=["alone", "side"])
async def test_a_constraint_rejects_only_its_row(
    backend: PostgresBackend, direct: asyncpg.Connection, create: bool
) -> None:
    await direct.execute(CONSTRAINED.format(table="constrained"))
    store = await backend.store(spec("constrained", create=create))
    bad: dict[int, Any] = {3: {"n": 11}, 7: {"other": "nobody"}, 8: {"n": 7}, 12: {"n": 8}, 14: {"word": "w"}}
    wanted = [bad.get(index, {"n": 1}) for index in range(20)]
    puts: list[Operation] = [put(f"{index}", members) for index, members in enumerate(wanted)]
    updates: list[Operation] = [update(f"{index}", {}, members) for index, members in enumerate(wanted)]
    await written(store, put("x", {"word": "w"}))
    for operations in (puts, updates):
        outcomes = await store.apply(operations)
        found = {index: outcome for index, outcome in enumerate(outcomes) if isinstance(outcome, TableError)}
        assert found.keys() == bad.keys()
        assert all(outcome.applied == "no" for outcome in found.values())
        for index, word in {3: "'small'", 7: "_other_fkey", 8: "trigger", 14: "'single'"}.items():
            assert isinstance(found[index], InvalidOperation)
            assert word in found[index].detail
            assert "secret" not in found[index].detail
        assert len(await scanned(store)) == 16
        await store.apply([Delete(f"{index}") for index in range(20)])


async def test_metadata_of_rows_is_in_a_side_table(backend: PostgresBackend, direct: asyncpg.Connection) -> None:
    name = new_name()
    await direct.execute(f"CREATE TABLE {quoted(name)} (id text PRIMARY KEY, n int)")
    alone = await backend.store(spec(name))
    assert (alone.capabilities.tokens, alone.capabilities.ttl) == (False, False)
    assert refused(await one(alone, put("a", {}, ttl_s=5)), Unsupported)
    with pytest.raises(Unsupported):
        await backend.store(spec(name, ttl_s=5.0))
    store = await backend.store(spec(name, create=True))
    assert (store.capabilities.tokens, store.capabilities.ttl) == (True, True)
    assert (await backend.store(spec(name))).capabilities.tokens
    increment = update("a", {"$inc": {"n": 1}}, {"n": 0}, token=Token("w", 1), ttl_s=1000)
    await written(store, increment)
    side = f"SELECT id, _ts_version, _ts_expires, _ts_writers::text FROM {quoted('_ts_' + name)}"
    [row] = await direct.fetch(side)
    assert (row["id"], row["_ts_writers"]) == ("a", '[["w", 1]]')
    assert str(row["_ts_version"]) == await etag(store, "a")
    await direct.execute(f"UPDATE {quoted(name)} SET n = 5")
    assert (await record(store, "a")).expires_ms == 0  # a write of another tool removes the expiry
    assert (await written(store, increment)).replayed
    await written(store, update("a", {"$inc": {"n": 1}}))
    assert (await record(store, "a")).expires_ms == 0
    await direct.execute(f"DELETE FROM {quoted(name)}")
    assert (await written(store, increment)).replayed
    assert await one(store, Get("a")) is None
    await written(store, update("absent", {}, {}))
    await written(store, Delete("absent"))
    assert refused(await one(store, update("nothing", {})), RecordNotFound)
    assert [row["id"] for row in await direct.fetch(side)] == ["a"]


async def test_a_side_row_that_another_process_changes_after_it_was_read_is_decided_again(
    backend: PostgresBackend, direct: asyncpg.Connection, postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = new_name()
    await direct.execute(f"CREATE TABLE {quoted(name)} (id text PRIMARY KEY, n int)")
    store, token = await backend.store(spec(name, create=True)), Token("w", 1)
    find, deletes = reads.RecordReader.find, [Delete("a", token=token)]
    async with database(postgres_dsn) as other_process:
        other = await other_process.store(spec(name, create=True))

        async def and_delete(*given: Any) -> Any:
            found = await find(*given)
            if deletes:
                await written(other, deletes.pop())
            return found

        monkeypatch.setattr(reads.RecordReader, "find", and_delete)
        assert (await written(store, put("a", {"n": 1}, token=token))).replayed
        assert await one(store, Get("a")) is None
