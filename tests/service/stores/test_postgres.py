"""The shared suite on the PostgreSQL store with tables of documents, and tests of its specific features."""

import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import pytest
from pydantic import ValidationError

from contract import StoreContract, Time, etag, one, put, record, refused, same, scanned, update, value, written
from contract.foreign import ForeignRecords
from contract.opening import Opens
from support.postgres_tables import database, new_name, role, settings
from tableside.core import values
from tableside.core.errors import (
    InvalidOperation,
    PreconditionFailed,
    RecordUnreadable,
    StoreUnavailable,
    TableError,
    TableNotFound,
    Unsupported,
)
from tableside.core.keys import KeyField, KeySchema
from tableside.core.operations import Delete, Get, Key, Operation, Record, Token, Written
from tableside.core.store import Store, TableSpec
from tableside.stores.postgres import reads
from tableside.stores.postgres.backend import PostgresBackend
from tableside.stores.postgres.schema import quoted

pytestmark = pytest.mark.server


class Documents(Opens):
    @pytest.fixture(autouse=True)
    def _server(self, postgres_dsn: str) -> None:
        self.dsn = postgres_dsn

    @asynccontextmanager
    async def opened(self, spec: TableSpec, time: Time, directory: Path) -> AsyncIterator[Store]:
        given = spec.key.fields[0].name is not None
        async with database(self.dsn, time) as backend:
            yield await backend.store(msgspec.structs.replace(spec, create=True, key_given=given, stored_as=new_name()))


class TestDocuments(Documents, StoreContract):
    """The complete contract."""


def spec(name: str, **rest: Any) -> TableSpec:
    return TableSpec("t", **{"stored_as": name, "create": True, **rest})


async def test_a_table_created_with_psql_stores_records(backend: PostgresBackend, direct: asyncpg.Connection) -> None:
    name = new_name()
    await direct.execute(
        f"CREATE TABLE {quoted(name)} (id bigint PRIMARY KEY, value jsonb NOT NULL, note text DEFAULT 'x')"
    )
    await direct.execute(
        f"""INSERT INTO {quoted(name)} VALUES (7, '{{"n": 1.0, "big": 1e20, "deep": [1.50, -0.0]}}')"""
    )
    store = await backend.store(spec(name, create=False))
    assert store.spec.key == KeySchema((KeyField("id", "integer"),))
    assert (store.capabilities.tokens, store.capabilities.ttl, store.capabilities.if_match) == (False, False, True)
    assert (await record(store, 7)).value == values.encode({"n": 1, "big": 1e20, "deep": [1.5, 0]})
    version = await etag(store, 7)
    assert not isinstance(await one(store, update(7, {"$inc": {"n": 1}}, if_match=(version,))), TableError)
    assert same(await value(store, 7), {"n": 2, "big": 1e20, "deep": [1.5, 0]})
    found = await direct.fetchrow(f"SELECT value->>'n' AS n, note FROM {quoted(name)}")
    assert found is not None
    assert (found["n"], found["note"]) == ("2", "x")
    for refused_one in (put(7, {}, ttl_s=5), put(7, {}, token=Token("w", 1)), Delete(7, order=1)):
        assert refused(await one(store, refused_one), Unsupported)
    with pytest.raises(Unsupported):
        await backend.store(spec(name, create=False, ttl_s=5.0))


async def test_rows_of_psql_are_records_and_psql_reads_records(
    backend: PostgresBackend, direct: asyncpg.Connection
) -> None:
    name = new_name()
    store = await backend.store(spec(name))
    table = quoted(name)
    await direct.execute(f"""INSERT INTO {table} (key, value) VALUES ('a', '{{"n": 1}}'), ('none', NULL)""")
    assert same(await value(store, "a"), {"n": 1})
    assert await one(store, Get("none")) is None
    assert await scanned(store) == ["a"]
    seen = {await etag(store, "a")}
    for _ in range(3):
        await direct.execute(f"UPDATE {table} SET value = value WHERE key = 'a'")
        seen.add(await etag(store, "a"))
    await direct.execute(f"""DELETE FROM {table}; INSERT INTO {table} (key, value) VALUES ('a', '{{"n": 1}}')""")
    seen.add(await etag(store, "a"))
    await written(store, put("a", {"n": 1}))
    seen.add(await etag(store, "a"))
    assert len(seen) == 6
    await direct.execute(f"VACUUM FULL {table}")
    assert await etag(store, "a") in seen
    await written(store, put("a", {"n": 5, "s": "ü"}, ttl_s=1000, token=Token("w", 3)))
    row = await direct.fetchrow(f"SELECT value::text, _ts_expires, _ts_writers::text FROM {table} WHERE key = 'a'")
    assert row is not None
    assert (row["value"], row["_ts_writers"]) == ('{"n": 5, "s": "ü"}', '[["w", 3]]')
    assert row["_ts_expires"] == (await record(store, "a")).expires_ms


async def test_a_write_waits_for_the_transaction_of_another_tool(
    backend: PostgresBackend, direct: asyncpg.Connection
) -> None:
    name = new_name()
    store = await backend.store(spec(name))
    await written(store, put("a", {"n": 0}))
    version = await etag(store, "a")
    transaction = direct.transaction()
    await transaction.start()
    await direct.execute(f"""UPDATE {quoted(name)} SET value = '{{"n": 10}}'""")
    await direct.execute(f"""INSERT INTO {quoted(name)} (key, value) VALUES ('b', '{{"n": 10}}')""")
    writes: list[Operation] = [
        update("a", {"$inc": {"n": 1}}),
        put("a", {"n": 5}, if_match=(version,)),
        update("b", {"$inc": {"n": 1}}, {}),
    ]
    tasks = [asyncio.create_task(one(store, write)) for write in writes]
    await asyncio.sleep(0.2)
    assert not any(task.done() for task in tasks)
    await transaction.commit()
    outcomes = await asyncio.gather(*tasks)
    assert isinstance(outcomes[0], Written)
    assert refused(outcomes[1], PreconditionFailed)
    assert isinstance(outcomes[2], Written)
    assert not outcomes[2].created
    assert same([await value(store, "a"), await value(store, "b")], [{"n": 11}, {"n": 11}])


class TestForeignRecords(ForeignRecords):
    valid = '{ "n": 1.0, "s": "x" }'
    invalid = ("[1]", "null", '{"_ts": 1}', '{"": 1}', '{"a": 1e400}', "{}".join(['{"a":' * 30, "}" * 30]))

    @pytest.fixture(autouse=True)
    def _server(self, backend: PostgresBackend, direct: asyncpg.Connection) -> None:
        self.backend, self.direct = backend, direct

    @asynccontextmanager
    async def containing(self, records: Mapping[str, Any]) -> AsyncIterator[Store]:
        store = await self.backend.store(spec(name := new_name()))
        insert = f"INSERT INTO {quoted(name)} (key, value) VALUES ($1, $2::text::jsonb)"
        await self.direct.executemany(insert, records.items())
        yield store


@pytest.mark.parametrize("key", ["", "k" * 1025])
async def test_a_scan_names_a_key_that_no_record_can_have(
    backend: PostgresBackend, direct: asyncpg.Connection, key: str
) -> None:
    name = new_name()
    store = await backend.store(spec(name))
    await written(store, put("a", {}))
    await direct.execute(f"INSERT INTO {quoted(name)} (key, value) VALUES ($1, '{{}}')", key)
    wanted = f"the scan cannot continue at the key `{key[:1]}.*: another tool wrote the row: a string"
    with pytest.raises(RecordUnreadable, match=wanted):
        await scanned(store)


async def test_concurrent_replicas_create_one_table(postgres_dsn: str) -> None:
    name = new_name()
    async with AsyncExitStack() as stack:
        backends = [await stack.enter_async_context(database(postgres_dsn)) for _ in range(8)]
        stores = await asyncio.gather(*(backend.store(spec(name)) for backend in backends))
        await asyncio.gather(*(one(store, update("a", {"$inc": {"n": 1}}, {"n": 0})) for store in stores))
        assert same(await value(stores[0], "a"), {"n": 8})
        assert name in await backends[0].tables()


async def test_names_are_any_but_too_long(backend: PostgresBackend) -> None:
    names = ("a.b", "A-b", 'q"uote', "select", "x" * 63)
    for name in names:
        await written(await backend.store(spec(name)), put("a", {"name": name}))
    for name in names:
        assert same(await value(await backend.store(spec(name, create=False)), "a"), {"name": name})
    with pytest.raises(Unsupported, match="63 bytes"):
        await backend.store(spec("x" * 64))
    with pytest.raises(TableNotFound):
        await backend.store(spec("absent", create=False))
    with pytest.raises(InvalidOperation):
        await backend.store(spec(new_name(), key=KeySchema((KeyField("value", "string"),)), key_given=True))


async def test_a_table_in_a_separate_schema(postgres_dsn: str, direct: asyncpg.Connection) -> None:
    await direct.execute('CREATE SCHEMA IF NOT EXISTS "Own schema"')
    async with database(postgres_dsn, schema="Own schema") as backend:
        store = await backend.store(spec("mine"))
        await written(store, put("a", {"n": 1}))
        assert await direct.fetchval('SELECT count(*) FROM "Own schema".mine') == 1
        assert await backend.tables() == ["mine"]
    async with database(postgres_dsn, schema="nowhere") as backend:
        with pytest.raises(TableNotFound):
            await backend.store(spec("mine"))


async def test_operations_without_permission_are_unsupported(backend: PostgresBackend, postgres_dsn: str) -> None:
    name = new_name()
    await written(await backend.store(spec(name)), put("a", {"n": 1}))
    async with role(postgres_dsn, f"SELECT ON {quoted(name)}") as reader_dsn, database(reader_dsn) as reading:
        store = await reading.store(spec(name))
        assert same(await value(store, "a"), {"n": 1})
        for operation in (put("a"), update("a", {"n": 1}), Delete("a")):
            assert refused(await one(store, operation), Unsupported)
        with pytest.raises(Unsupported):
            await reading.store(spec(new_name()))


async def test_a_dropped_table_is_not_found(backend: PostgresBackend, direct: asyncpg.Connection) -> None:
    name = new_name()
    store = await backend.store(spec(name))
    await direct.execute(f"DROP TABLE {quoted(name)}")
    for operation in (Get("a"), put("a"), update("a", {}, {})):
        assert refused(await one(store, operation), TableNotFound)


async def test_the_writers_of_an_expired_record_are_forgotten(postgres_dsn: str) -> None:
    time = Time(real=False)
    async with database(postgres_dsn, time) as backend:
        store = await backend.store(spec(new_name()))
        await written(store, put("a", {"n": 1}, ttl_s=1, token=Token("w", 5)))
        await time.passes(1)
        await written(store, put("a", {"n": 2}))
        assert not (await written(store, update("a", {"$inc": {"n": 1}}, token=Token("w", 5)))).replayed
        assert same(await value(store, "a"), {"n": 3})


async def test_a_secret_is_never_shown(caplog: pytest.LogCaptureFixture) -> None:
    dsn = "postgresql://someone:sesame@127.0.0.1:1/db"
    shown = [repr(settings(dsn)), str(settings(dsn)), settings(dsn).model_dump_json()]
    async with database(dsn) as backend:
        for ask in (backend.ping, backend.tables, lambda: backend.store(spec("t"))):
            with pytest.raises(StoreUnavailable) as raised:
                await ask()
            shown += [raised.value.detail, repr(raised.value)]
    with pytest.raises(ValidationError) as invalid:
        settings("mysql://someone:sesame@x/db")
    shown += [error["msg"] for error in invalid.value.errors(include_input=False)]
    assert "sesame" not in " ".join([*shown, caplog.text])


async def test_overlapping_batches_of_many_clients_never_deadlock(
    postgres_dsn: str, direct: asyncpg.Connection
) -> None:
    deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    before, counts = await direct.fetchval(deadlocks), Counter[Key]()
    async with AsyncExitStack() as stack:
        name, until = new_name(), time.monotonic() + SOAK_S
        replicas = [await stack.enter_async_context(database(postgres_dsn, connections_max=6)) for _ in range(4)]
        stores = [await replica.store(spec(name)) for replica in replicas]

        async def client(number: int) -> None:
            chance = random.Random(number)
            while time.monotonic() < until:
                operations = [mixed(chance, key) for key in chance.sample(range(300), 100)]
                outcomes = await stores[number % 4].apply(operations)
                assert {type(outcome) for outcome in outcomes} == {Written}
                counts.update(operation.key for operation in operations if str(operation.key).startswith("n"))

        await asyncio.gather(*(client(number) for number in range(16)))
        found = await stores[0].apply([Get(key) for key in counts])
        sums = [values.decode(outcome.value)["n"] for outcome in found if isinstance(outcome, Record)]
        assert sums == [*counts.values()]
    await asyncio.sleep(0.6)  # the server updates its statistics with a delay
    assert await direct.fetchval(deadlocks) == before


async def test_a_row_that_is_changed_after_it_was_read_is_decided_again(
    backend: PostgresBackend, direct: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await backend.store(spec(name := new_name()))
    await store.apply([put("a", {"n": 1}), put("b", {"n": 1}), put("c", {"n": 1})])
    changes = [f"""UPDATE {quoted(name)} SET value = '{{"n": 10}}' WHERE key < 'c'"""]
    find = reads.RecordReader.find

    async def and_change(*given: Any) -> Any:
        found = await find(*given)
        if changes:
            await direct.execute(changes.pop())
        return found

    monkeypatch.setattr(reads.RecordReader, "find", and_change)
    await store.apply([update("a", {"$inc": {"n": 1}}), Delete("b", if_match=("*",)), update("c", {"$inc": {"n": 1}})])
    assert [await value(store, "a"), await one(store, Get("b")), await value(store, "c")] == [{"n": 11}, None, {"n": 2}]


async def test_a_trigger_that_leaves_a_record_unchanged_rejects_its_update(
    backend: PostgresBackend, direct: asyncpg.Connection
) -> None:
    store = await backend.store(spec(name := new_name()))
    await store.apply([put("a", {"n": 1}), put("b", {"n": 1})])
    await direct.execute(
        f"CREATE OR REPLACE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RETURN NULL; END$$; "
        f"CREATE TRIGGER keep BEFORE UPDATE ON {quoted(name)} FOR EACH ROW WHEN (old.key = 'a') EXECUTE FUNCTION keep()"
    )
    for both in ([update("a", {"n": 2}), update("b", {"n": 2})], [put("a", {"n": 2}), put("b", {"n": 2})]):
        kept, changed = await store.apply(both)
        assert refused(kept, InvalidOperation)
        assert isinstance(changed, Written)
    assert (await value(store, "a"), await value(store, "b")) == ({"n": 1}, {"n": 2})


SOAK_S = float(os.environ.get("TABLESIDE_SOAK_S", "8"))


def mixed(chance: random.Random, key: int) -> Operation:
    """Return an increment that the test counts, or another write of a record that it ignores."""
    kind = chance.random()
    if kind < 0.85:
        return update(f"n{key}", {"$inc": {"n": 1}}, {"n": 0})
    if kind < 0.93:
        return put(f"p{key}", {"n": 7})
    return update(f"p{key}", {"$inc": {"n": 1}}, {"n": 0}) if kind < 0.97 else Delete(f"p{key}")
