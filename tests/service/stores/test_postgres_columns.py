"""The shared suite on the PostgreSQL store with tables of columns, with and without a side table, and types."""

import uuid
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import pytest
from hypothesis import HealthCheck, settings as hypothesis_settings
from hypothesis.stateful import run_state_machine_as_test

from contract import (
    Basics,
    KeysAndValues,
    Preconditions,
    Scans,
    StoreContract,
    Time,
    Tokens,
    Updates,
    etag,
    one,
    pages,
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
from service.test_stateful import Machine
from support.postgres_tables import database, new_name, psql, settings
from tableside.core import values
from tableside.core.backend import Backend
from tableside.core.errors import (
    InvalidOperation,
    PreconditionFailed,
    RecordNotFound,
    RecordUnreadable,
    TableError,
    TableNotFound,
    Unsupported,
)
from tableside.core.keys import KeyField, KeySchema
from tableside.core.operations import Delete, Get, Operation, Token, Written
from tableside.core.store import Scan, Store, TableSpec
from tableside.stores.postgres.backend import PostgresBackend, PostgresTableOptions
from tableside.stores.postgres.schema import quoted

COLUMNS = PostgresTableOptions(layout="columns")

MEMBERS = [
    *"abcdhiklmnrstwxyz", "kept", "gone", "word", "big", "list", "seen", "member", "made", "rich", "long", "full",
    "one", "half", "deep", *(f"m{index}" for index in range(64)), "a.b", " ", "ü", "🛫", "$", "#", ":", "key", "value",
    "etag", "ttl", "x_ts", "%", "$schema", "$set", "$ref", "$n", "$gone", '"', "'", "\\", "\n", "N",
]  # fmt: skip
"""The names of all members in the shared suite: each is a column that accepts any JSON."""


class Columns(Opens):
    side = True

    @pytest.fixture(autouse=True)
    def _server(self, postgres_dsn: str) -> None:
        self.dsn = postgres_dsn

    def opened(self, spec: TableSpec, time: Time, directory: Path) -> AbstractAsyncContextManager[Store]:
        @asynccontextmanager
        async def opened() -> AsyncIterator[Store]:
            name = new_name()
            await make(self.dsn, name, spec)
            async with database(self.dsn, time) as backend:
                yield await backend.store(
                    msgspec.structs.replace(spec, create=self.side, stored_as=name, options=COLUMNS)
                )

        return opened()


class TestColumns(Columns, StoreContract):
    """The complete contract."""


class TestColumnsAlone(Columns, Basics, KeysAndValues, Updates, Preconditions, Scans):
    """Without a side table: no tokens, no expiry."""

    side = False
    test_a_store_without_tokens_rejects_them = Tokens.test_a_store_without_tokens_rejects_them


async def make(dsn: str, name: str, spec: TableSpec) -> None:
    types = {"string": 'text COLLATE "C"', "integer": "bigint"}
    keys = {field.name or "the key": types[field.type] for field in spec.key.fields}
    columns = {**dict.fromkeys(MEMBERS, "jsonb"), **keys}
    defined = ", ".join(f"{quoted(column)} {kind}" for column, kind in columns.items())
    primary = ", ".join(map(quoted, keys))
    async with psql(dsn) as connection:
        await connection.execute(f"CREATE TABLE {quoted(name)} ({defined}, PRIMARY KEY ({primary}))")


class ColumnsMachine(Machine):
    """The state machine on a table of columns that take any JSON."""

    dsn = ""

    async def opened(self) -> Backend:
        name = new_name()
        await make(self.dsn, name, self.spec)
        self.spec = msgspec.structs.replace(self.spec, create=True, stored_as=name, options=COLUMNS)
        return await PostgresBackend.open(settings(self.dsn, sweep_every_s=0.05), lambda: self.now)


def test_it_equals_the_naive_table(postgres_dsn: str, full: bool) -> None:
    ColumnsMachine.dsn = postgres_dsn
    few = hypothesis_settings(
        max_examples=8 if full else 3, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
    )
    run_state_machine_as_test(ColumnsMachine, settings=few)


async def test_a_null_is_json_null_in_a_json_column_and_absence_elsewhere(postgres_dsn: str) -> None:
    name = new_name()
    async with psql(postgres_dsn) as connection, database(postgres_dsn) as backend:
        columns = "id text PRIMARY KEY, a jsonb NOT NULL, b json, c jsonb, d text, e jsonb[]"
        await connection.execute(f"CREATE TABLE {quoted(name)} ({columns})")
        store = await backend.store(TableSpec("t", stored_as=name, options=COLUMNS))
        await written(store, put("x", {"a": None, "b": None, "d": None, "e": None}))
        assert same(await value(store, "x"), {"a": None, "b": None})
        row = await connection.fetchrow(f"SELECT a::text, b::text, c IS NULL, d IS NULL, e IS NULL FROM {quoted(name)}")
        assert row is not None
        assert [*row.values()] == ["null", "null", True, True, True]
        assert refused(await one(store, put("y", {"b": 1})), InvalidOperation)


TYPED = """
CREATE TABLE {table} (
    id uuid PRIMARY KEY, small smallint, whole integer, big bigint, exact numeric(6,2), free numeric, real real,
    double double precision, word text, short varchar(3), fixed char(4), yes boolean, json json, jsonb jsonb,
    day date, at timestamp, instant timestamptz, hour time, span interval, address inet, other uuid, raw bytea,
    mood mood, amount positive, wholes integer[], words text[], matrix integer[][], raws bytea[], documents jsonb[],
    "Weird ""name"" 'x'" text, needed text NOT NULL DEFAULT 'y', number bigint GENERATED ALWAYS AS IDENTITY,
    twice integer GENERATED ALWAYS AS (whole * 2) STORED, "_ts_own" text DEFAULT 'hidden', range int4range
)
"""
ID = "0f0e0d0c-0b0a-4908-8706-050403020100"
EVERYTHING = {
    "small": -32768, "whole": -1073741824, "big": -(2**63), "exact": 1234.5, "free": 1e30, "real": 0.25,
    "double": 1e-300,
    "word": "ü 🛫 \n \\ \" '", "short": "abc", "fixed": "ab  ", "yes": False, "json": {"a": [1, None]},
    "jsonb": [1, {"b": None}], "day": "2026-11-20", "at": "2026-11-20T12:34:56.789", "hour": "23:59:59",
    "instant": "2026-11-20T12:34:56+00:00", "span": "P1DT2H", "address": "10.0.0.1", "raw": "3q2+7w==", "mood": "so so",
    "other": ID, "amount": 5, "wholes": [1, None, -3], "words": ["", "NULL", "null", "a,b", "{}", '"', "\\", None],
    "matrix": [[1, 2], [3, 4]], "raws": ["3q2+7w==", ""], "documents": [{"a": "}\""}, 1], "Weird \"name\" 'x'": "w",
    "needed": "n", "range": "[1,5)",
}  # fmt: skip


class Typed:
    """A table with a column of every type, and a direct connection next to the store's."""

    def __init__(self, store: Store, direct: asyncpg.Connection, table: str) -> None:
        self.store = store
        self.direct = direct
        self.table = table

    async def refused(self, name: str, **members: Any) -> None:
        """Check that a put is rejected with the name of the wrong member, and the rest of its batch is applied."""
        before = await one(self.store, Get(ID))
        good = [str(uuid.uuid4()) for _ in range(6)]
        puts = [put(key, {"needed": "n"}) for key in good]
        puts.insert(3, put(ID, {"needed": "n", **members}))
        outcomes = await self.store.apply(puts)
        assert refused(outcomes[3], InvalidOperation)
        assert name in getattr(outcomes[3], "detail", ""), outcomes[3]
        assert not any(str(member) in getattr(outcomes[3], "detail", "") for member in members.values())
        assert [type(outcome) for index, outcome in enumerate(outcomes) if index != 3] == [Written] * 6
        assert await one(self.store, Get(ID)) == before


@pytest.fixture(params=[True, False], ids=["side", "alone"])
async def typed(request: pytest.FixtureRequest, postgres_dsn: str) -> AsyncIterator[Typed]:
    name = new_name()
    async with psql(postgres_dsn) as direct, database(postgres_dsn, connections_max=3) as backend:
        await direct.execute(
            "DROP TYPE IF EXISTS mood CASCADE; CREATE TYPE mood AS ENUM ('so so', 'good');"
            "DROP DOMAIN IF EXISTS positive CASCADE; CREATE DOMAIN positive AS integer CHECK (value > 0)"
        )
        await direct.execute(TYPED.format(table=quoted(name)))
        spec = TableSpec("t", stored_as=name, create=request.param, options=COLUMNS)
        yield Typed(await backend.store(spec), direct, quoted(name))


async def test_every_type_is_preserved(typed: Typed) -> None:
    made = await written(typed.store, put(ID, EVERYTHING, returning=True))
    found = await value(typed.store, ID)
    assert same(found, {**EVERYTHING, "number": 1, "twice": -2147483648})
    assert made.value is not None
    assert same(found, values.decode(made.value))
    assert await typed.direct.fetchval(f"SELECT _ts_own FROM {typed.table}") == "hidden"
    [page] = await pages(typed.store, Scan(10))
    assert same(values.decode(page.records[0][1].value), found)


async def test_an_update_changes_only_its_column(typed: Typed) -> None:
    await written(typed.store, put(ID, EVERYTHING))
    changed = await written(typed.store, update(ID, {"$inc": {"whole": 1}, "$push": {"wholes": 9}, "$unset": ["word"]}))
    wanted = {**EVERYTHING, "whole": -1073741823, "wholes": [1, None, -3, 9], "number": 1, "twice": -2147483646}
    del wanted["word"]
    assert same(await value(typed.store, ID), wanted)
    assert (await record(typed.store, ID)).etag == changed.etag


async def test_an_update_preserves_details_that_json_cannot_express(typed: Typed) -> None:
    """Digits beyond a double's precision, the formatting of JSON text and years BC: no JSON value can express these."""
    columns = "id, needed, whole, free, json, jsonb, at, exact, documents"
    members = f"""'{ID}', 'n', 1, 12345678901234567890.123450, '{{"b" : 1.50}}', '12345678901234567890.5',
        '0044-03-15 12:00 BC', 1.10, '{{1.50}}'"""
    await typed.direct.execute(f"INSERT INTO {typed.table} ({columns}) VALUES ({members})")
    kept = f"SELECT concat_ws(' ', free, json, jsonb, at, exact, documents) FROM {typed.table}"
    before = await typed.direct.fetchval(kept)
    assert "12345678901234567890.123450" in before
    for changes in ({"$inc": {"whole": 1}}, {"word": "="}, {"short": "="}):
        await written(typed.store, update(ID, changes))
    assert await typed.direct.fetchval(kept) == before
    assert refused(await one(typed.store, update(ID, {"address": "no"})), InvalidOperation)
    await written(typed.store, update(ID, {"free": 2, "json": {"b": 2}, "at": "2026-11-20T12:00:00", "exact": None}))
    found = await value(typed.store, ID)
    assert (found["free"], found["json"], found["at"]) == (2, {"b": 2}, "2026-11-20T12:00:00")
    assert "exact" not in found
    assert (found["whole"], found["word"], found["short"]) == (2, "=", "=")


async def test_values_without_json_form_are_unreadable(typed: Typed) -> None:
    await written(typed.store, put(ID, {"needed": "n"}))
    await typed.direct.execute(f"""UPDATE {typed.table} SET json = '{{"a": "\\u0000"}}'""")
    assert refused(await one(typed.store, Get(ID)), RecordUnreadable)
    assert refused(await one(typed.store, update(ID, {"whole": 1})), RecordUnreadable)
    with pytest.raises(RecordUnreadable):
        await typed.store.scan(Scan(10))


async def test_columns_that_a_put_omits_become_null(typed: Typed) -> None:
    await written(typed.store, put(ID, EVERYTHING))
    await written(typed.store, put(ID, {"needed": "x", "word": None}))
    assert same(await value(typed.store, ID), {"needed": "x", "number": 1})


@pytest.mark.parametrize(
    ("name", "member"),
    [
        ("small", 32768), ("small", "1"), ("small", 1.5), ("small", True), ("whole", 2**31), ("big", 0.5), ("yes", 1),
        ("yes", "true"), ("word", 1), ("word", {}), ("short", "abcd"), ("fixed", "abcde"), ("exact", 12345.6),
        ("real", 1e300), ("double", "one"), ("day", "today"), ("day", "2026-02-30"), ("day", 5),
        ("at", "now"), ("at", "2026-11-20 25:00:00"), ("instant", "2026-11-20T10:00:00"), ("hour", "24:61"),
        ("span", "long"), ("address", "10.0.0.300"), ("other", "x"), ("raw", "%"), ("raw", 1), ("mood", "bad"),
        ("amount", 0), ("wholes", 1), ("wholes", [2**31]), ("wholes", ["x"]), ("matrix", [[1], [2, 3]]),
        ("short", "abc "), ("fixed", "abcd "), ("at", "2026-11-20T12:34:56.1234567"), ("hour", "23:59:59.1234567"),
        ("instant", "2026-11-20T12:34:56.1234567Z"), ("words", [1]), ("range", "1"),
        ("unknown", 1), ("number", 7), ("twice", 7), ("needed", None),
    ],
    ids=str,
)  # fmt: skip
async def test_a_value_that_does_not_fit_its_column_is_rejected_with_its_name(
    typed: Typed, name: str, member: Any
) -> None:
    await typed.refused("positive" if name == "amount" else name, **{name: member})


async def test_unknown_members_are_named_up_to_a_limit(typed: Typed) -> None:
    outcome = await one(typed.store, put(ID, {"needed": "n", **{f"m{number}" * 50: 1 for number in range(9)}}))
    assert isinstance(outcome, InvalidOperation)
    assert outcome.detail.startswith("the table has no column `m0m0m0")
    assert outcome.detail.endswith("…` and 4 more")


async def test_numbers_that_json_lacks_are_strings(typed: Typed) -> None:
    odd = {"double": "NaN", "real": "-Infinity", "free": "NaN", "at": "infinity", "day": "-infinity", "needed": "n"}
    await written(typed.store, put(ID, odd))
    assert same(await value(typed.store, ID), {**odd, "number": 1})
    assert refused(await one(typed.store, update(ID, {"$inc": {"double": 1}})), InvalidOperation)


async def test_numbers_are_rounded_as_the_column_does(typed: Typed) -> None:
    given = {"exact": 0.1 + 0.2, "real": 0.1, "free": 0.1, "needed": "n"}
    made = await written(typed.store, put(ID, given, returning=True))
    assert same(values.decode(made.value or b""), {"exact": 0.3, "real": 0.1, "free": 0.1, "needed": "n", "number": 1})


async def test_rows_of_psql_are_records(typed: Typed) -> None:
    columns = "INSERT INTO {table} (id, exact, free, double, needed, json) VALUES"
    row = f"""('{ID}', 12, 1e25, 1e18, 'n', E'{{"a" : 1.0,\\n "a": 2.50}}')"""
    await typed.direct.execute(columns.format(table=typed.table) + row)
    wanted = {"exact": 12, "free": 1e25, "double": 10**18, "needed": "n", "json": {"a": 2.5}, "number": 1}
    assert same(await value(typed.store, ID), wanted)
    version = await etag(typed.store, ID)
    await typed.direct.execute(f"UPDATE {typed.table} SET needed = needed")
    assert refused(await one(typed.store, put(ID, {"needed": "x"}, if_match=(version,))), PreconditionFailed)
    version = await etag(typed.store, ID)
    changed = await written(typed.store, update(ID, {"$inc": {"exact": 0.25}}, if_match=(version,)))
    found = await typed.direct.fetchrow(f"SELECT exact, free, xmin::text FROM {typed.table}")
    assert found is not None
    assert (str(found["exact"]), found["free"], found["xmin"]) == ("12.25", 10**25, changed.etag)


async def test_a_uuid_key_has_one_form(typed: Typed) -> None:
    for key in (ID.upper(), ID.replace("-", ""), f"{{{ID}}}", "x", ""):
        for operation in (Get(key), put(key, {"needed": "n"}), Delete(key)):
            assert refused(await one(typed.store, operation), InvalidOperation)
    await typed.store.apply([put(str(uuid.UUID(int=index)), {"needed": "n"}) for index in range(30)])
    found = await scanned(typed.store, prefix="00000000-0000-0000-0000-00000000001")
    assert found == [str(uuid.UUID(int=index)) for index in range(16, 30)]
    parts = await typed.store.splits(3)
    assert len([key for part in parts for key in await scanned(typed.store, split=part)]) == 30


@pytest.fixture
async def direct(postgres_dsn: str) -> AsyncIterator[asyncpg.Connection]:
    async with psql(postgres_dsn) as connection:
        yield connection


@pytest.fixture
async def backend(postgres_dsn: str) -> AsyncIterator[PostgresBackend]:
    async with database(postgres_dsn) as opened:
        yield opened


def spec(name: str, **rest: Any) -> TableSpec:
    return TableSpec("t", **{"stored_as": name, "options": COLUMNS, **rest})


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
        ("CREATE TABLE {} (a text UNIQUE, n int UNIQUE)", None),
        ("CREATE TABLE {} (a text PRIMARY KEY, n int)", ("n", "integer")),
        ("CREATE TABLE {} (a text PRIMARY KEY, n int)", ("a", "integer")),
        ("CREATE TABLE {} (a text PRIMARY KEY, n int)", ("x", "string")),
        ("CREATE TABLE {} (a double precision PRIMARY KEY, n int)", None),
        ("CREATE TABLE {} (a text UNIQUE, n int)", ("a", "string")),
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
    bad: dict[int, dict[str, Any]] = {
        3: {"n": 11},
        7: {"other": "nobody"},
        8: {"n": 7},
        12: {"n": 8},
        14: {"word": "w"},
    }
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


async def test_settings_of_a_role_lose_no_digits_and_no_nulls(postgres_dsn: str, direct: asyncpg.Connection) -> None:
    name = new_name()
    columns = "id text PRIMARY KEY, double double precision, words text[], n integer"
    await direct.execute(f"CREATE TABLE {quoted(name)} ({columns})")
    told = "?options=-cextra_float_digits%3D0%20-carray_nulls%3Doff%20-cbytea_output%3Descape"
    async with database(postgres_dsn + told) as backend:
        store = await backend.store(spec(name))
        before = {"double": 0.1 + 0.2, "words": ["a", None]}
        await written(store, put("x", before))
        await written(store, update("x", {"n": 1}))
        assert same(await value(store, "x"), before | {"n": 1})


async def test_a_sweep_removes_rows_that_have_expired(postgres_dsn: str, direct: asyncpg.Connection) -> None:
    name, time = new_name(), Time(real=False)
    await direct.execute(f"CREATE TABLE {quoted(name)} (id text PRIMARY KEY, n int)")
    async with database(postgres_dsn, time) as backend:
        store = await backend.store(spec(name, create=True))
        await store.apply([put(f"{index}", {"n": 1}, ttl_s=1 if index % 2 else None) for index in range(10)])
        await store.apply(
            [put("renewed", {}, ttl_s=1), put("theirs", {}, ttl_s=1), Delete("gone", token=Token("w", 1))]
        )
        await written(store, put("renewed", {}))
        await direct.execute(f"UPDATE {quoted(name)} SET n = 2 WHERE id = 'theirs'")
        await time.passes(1)
        await store.sweep()
        kept = ["0", "2", "4", "6", "8", "renewed", "theirs"]
        assert [row[0] for row in await direct.fetch(f"SELECT id FROM {quoted(name)} ORDER BY 1")] == kept
        await time.passes(24 * 3600)
        await store.sweep()
        assert "gone" not in {row[0] for row in await direct.fetch(f"SELECT id FROM {quoted('_ts_' + name)}")}
