"""The shared suite on the Redis store with Redis and Valkey, and tests of other tools, options and limits."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from redis.asyncio import Redis

from contract import (
    COMPOSITE,
    INTEGERS,
    Basics,
    Expiry,
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
    pages,
    put,
    record,
    refused,
    scanned,
    text,
    update,
    value,
    written,
)
from contract.foreign import ForeignRecords
from contract.opening import Opens
from contract.ordered_writes import KEPT_FOR_S, MEMORY_S
from servers.process import HOST, free_port
from servers.redis import ensure_valkey, redis
from support.certificates import Authority
from support.redis_tables import configured, connected, own, redis_key, table, user
from tableside.core.errors import RecordUnreadable, TableError, Unsupported
from tableside.core.operations import Delete, Get, Key, Operation, Token, Written
from tableside.core.store import Scan, Store, TableSpec, now_ms
from tableside.stores.redis.keys import side_key
from tableside.stores.redis.settings import RedisSettings, RedisTableOptions

pytestmark = pytest.mark.server


class OnRedis(Opens):
    clock_can_be_set = False
    splits_have_several_parts = False

    @pytest.fixture(autouse=True)
    def _server(self, redis_url: str) -> None:
        self.url = redis_url

    def opened(self, spec: TableSpec, time: Time, directory: Path) -> AbstractAsyncContextManager[Store]:
        return table(self.url, spec)


class TestRedis(OnRedis, StoreContract):
    """The complete contract."""


@pytest.fixture(scope="module")
def valkey_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with redis(tmp_path_factory.mktemp("valkey"), program=ensure_valkey()) as url:
        yield url.replace("redis://", "valkey://")


class OnValkey(OnRedis):
    @pytest.fixture(autouse=True)
    def _server(self, valkey_url: str) -> None:
        self.url = valkey_url


class TestValkey(OnValkey, Basics, Tokens):
    """Calls with and without Lua scripts."""


@pytest.mark.daily
class TestTheRestOnValkey(OnValkey, KeysAndValues, Updates, Preconditions, Expiry, Orders, Scans):
    """The other parts of the contract."""


@pytest.fixture
async def store(redis_url: str) -> AsyncIterator[Any]:
    async with table(redis_url) as opened:
        yield opened


@pytest.mark.parametrize("what", KEPT_FOR_S)
async def test_a_side_key_with_orders_outlives_its_record(redis_url: str, tool: Any, what: str) -> None:
    writes, kept_for_s = KEPT_FOR_S[what]
    async with table(redis_url, TableSpec("t", delete_memory_s=MEMORY_S)) as store:
        for asked in writes:
            await written(store, asked("a"))
        left_s = await tool.ttl(side_key(redis_key(store, "a")))
    assert (left_s == -1) == (kept_for_s is None)
    assert kept_for_s is None or abs(left_s - kept_for_s) <= 5


# Other tools


async def test_a_record_is_a_string_of_json_under_a_documented_name(redis_url: str, tool: Any) -> None:
    async with table(redis_url, TableSpec("named", COMPOSITE, options=RedisTableOptions())) as store:
        await written(store, put(("a:b%", -5), {"n": 1, "s": "ü"}))
        raw = await tool.get("named:a%3Ab%25:-5")
        assert json.loads(raw) == {"n": 1, "s": "ü"}
        assert raw.startswith('{"n":1,"s":"ü"}'.encode())
        assert len(raw.rstrip()) == len(raw) - 16
        await written(store, Delete(("a:b%", -5)))
        assert await tool.exists("named:a%3Ab%25:-5") == 0


async def test_a_write_of_another_tool_in_between_is_detected(store: Any, tool: Any) -> None:
    version = (await written(store, put("a", {"n": 1}))).etag
    await tool.set(redis_key(store, "a"), '{"n":1}')
    assert await etag(store, "a") != version
    assert isinstance(await one(store, put("a", {}, if_match=(version or "",))), TableError)
    await asyncio.gather(
        *(written(store, update("a", {"$inc": {"n": 1}})) for _ in range(20)),
        *(tool.set(redis_key(store, "a"), '{"n":1000}') for _ in range(5)),
    )
    assert 1000 <= (await value(store, "a"))["n"] <= 1020


HASH = object()
"""A record that is not a string."""


class TestForeignRecords(ForeignRecords):
    valid = b'{ "n" : 1.0, "s": "x" }\n'
    invalid = (b"", b"junk", b"[1]", b'{"a":', b'{"_ts":1}', b"\xff\xfe", HASH)

    @pytest.fixture(autouse=True)
    def _server(self, redis_url: str, tool: Any) -> None:
        self.url, self.tool = redis_url, tool

    @asynccontextmanager
    async def containing(self, records: Mapping[str, Any]) -> AsyncIterator[Store]:
        async with table(self.url) as store:
            for key, text in records.items():
                name = redis_key(store, key)
                await (self.tool.hset(name, "f", "v") if text is HASH else self.tool.set(name, text))
            yield store


async def test_a_key_of_another_type_is_unreadable_among_many(own_redis_url: str) -> None:
    async with table(own_redis_url) as store, Redis.from_url(own_redis_url) as client:
        await client.flushall()  # Without keys that expire, many records are read by MGET.
        await client.hset(redis_key(store, "a"), "f", "v")
        outcomes = await store.apply([Get("a"), *(Get(f"{index}") for index in range(50))])
        assert refused(outcomes[0], RecordUnreadable)
        assert outcomes[1:] == [None] * 50


async def test_an_expiry_set_by_another_tool_is_shown_and_preserved(store: Any, tool: Any) -> None:
    keys = [f"{index}" for index in range(40)]
    await store.apply([put(key, {"n": 1}) for key in keys])
    at = now_ms() + 123_456
    await tool.pexpireat(redis_key(store, "7"), at)
    for some in (["7"], keys):
        found = await store.apply([Get(key) for key in some])
        assert {
            key: one_found.expires_ms for key, one_found in zip(some, found, strict=True) if one_found.expires_ms
        } == {"7": at}
    assert (await written(store, update("7", {"$inc": {"n": 1}}))).expires_ms == at
    assert (await written(store, update("7", {"$inc": {"n": 1}}, token=Token("w", 1)))).expires_ms == at
    assert await tool.pexpiretime(redis_key(store, "7")) == at
    assert await tool.pexpiretime(side_key(redis_key(store, "7"))) == at
    await tool.persist(redis_key(store, "7"))
    assert (await record(store, "7")).expires_ms == 0


async def test_puts_in_one_batch_have_their_own_lifetimes(store: Any, tool: Any) -> None:
    ttls_s = [100, None, 200, None]
    outcomes = await store.apply([put(f"{at}", {}, ttl_s=ttl_s) for at, ttl_s in enumerate(ttls_s)])
    assert [outcome.expires_ms > 0 for outcome in outcomes] == [ttl_s is not None for ttl_s in ttls_s]
    stored = [await tool.pexpiretime(redis_key(store, f"{at}")) for at in range(len(ttls_s))]
    assert stored == [outcome.expires_ms or -1 for outcome in outcomes]


async def test_names_in_another_form_are_not_in_scans(redis_url: str, tool: Any) -> None:
    async with connected(redis_url) as backend:
        numbers = await backend.store(own(TableSpec("t", INTEGERS)))
        pairs = await backend.store(own(TableSpec("t", COMPOSITE)))
        for key in ("1", "-7", "01", "x", "", "1.0", "9223372036854775808", "+1"):
            await tool.set(redis_key(numbers, key), "{}")
        for key in ("u:1", "u", "u:1:2", "%zz:1", "%3a:1", "%3A:2", ":1", "u:x"):
            await tool.set(redis_key(pairs, key), "{}")
        assert set(await scanned(numbers)) == {1, -7}
        assert set(await scanned(pairs)) == {("u", 1), (":", 2)}


# Side keys


async def test_only_a_write_with_a_token_creates_a_side_key(store: Any, tool: Any) -> None:
    await store.apply([put("a", {}), update("b", {}, {}), put("c", {}, token=Token("w", 7))])
    assert [await tool.exists(side_key(redis_key(store, key))) for key in "abc"] == [0, 0, 1]
    assert json.loads(await tool.get(side_key(redis_key(store, "c")))) == [1, ["w", 7]]
    assert set(await scanned(store)) == {"a", "b", "c"}
    await written(store, Delete("c"))
    assert await tool.exists(side_key(redis_key(store, "c"))) == 0


async def test_a_side_key_expires_with_its_record(store: Any, tool: Any) -> None:
    side = side_key(redis_key(store, "a"))
    await written(store, put("a", {}, ttl_s=100, token=Token("w", 1)))
    assert await tool.pexpiretime(side) == (await record(store, "a")).expires_ms > 0
    await written(store, put("a", {}, ttl_s=1000))
    assert await tool.pexpiretime(side) == (await record(store, "a")).expires_ms > 0
    await written(store, update("a", {"$set": {"n": 1}}, token=Token("v", 1)))
    assert await tool.pexpiretime(side) == (await record(store, "a")).expires_ms > 0
    await written(store, put("a", {}, token=Token("v", 2)))
    assert await tool.pexpiretime(side) == -1
    await written(store, put("a", {}, ttl_s=1000))
    await written(store, put("a", {}))
    assert await tool.pexpiretime(side) == -1
    await written(store, Delete("a", token=Token("w", 2)))
    assert abs(await tool.pexpiretime(side) - now_ms() - 24 * 3_600_000) < 5000
    assert json.loads(await tool.get(side)) == [0, ["v", 2], ["w", 2]]
    await written(store, update("a", {}, {}, ttl_s=50))
    assert json.loads(await tool.get(side)) == [1, ["v", 2], ["w", 2]]
    assert await tool.pexpiretime(side) == (await record(store, "a")).expires_ms > 0


AGAIN = [put("a", {"n": 0}), update("a", {}, {"n": 0}), put("a", {"n": 0}, token=Token("v", 5))]


@pytest.mark.parametrize("again", AGAIN, ids=["put", "update", "put once"])
async def test_side_keys_of_records_deleted_by_other_tools_are_ignored(store: Any, tool: Any, again: Operation) -> None:
    increment = update("a", {"$inc": {"n": 1}}, {"n": 0}, token=Token("w", 1))
    for _ in range(2):
        assert not (await written(store, increment)).replayed
        await tool.delete(redis_key(store, "a"))
    assert not (await written(store, again)).replayed
    assert not (await written(store, increment)).replayed
    assert await value(store, "a") == {"n": 1}


async def test_a_side_key_of_another_type_is_not_replaced(store: Any, tool: Any) -> None:
    side = side_key(redis_key(store, "a"))
    await store.apply([put("a"), put("b")])
    await tool.hset(side, "f", "v")
    outcomes = await store.apply([put(key, token=Token("w", 1)) for key in "ab"])
    assert refused(outcomes[0], RecordUnreadable)
    assert isinstance(outcomes[1], Written)
    assert await tool.hgetall(side) == {b"f": b"v"}


async def test_concurrent_deletes_of_an_absent_record_remember_all_writers(redis_url: str) -> None:
    async with connected(redis_url) as here, connected(redis_url) as there:
        spec = own(TableSpec("t"))
        stores = [await here.store(spec), await there.store(spec)]
        deletes = [Delete("a", token=Token(f"w{index}", 1)) for index in range(8)]
        for replayed in (False, True):
            works = [written(stores[index % 2], delete) for index, delete in enumerate(deletes)]
            assert [outcome.replayed for outcome in await asyncio.gather(*works)] == [replayed] * 8


# Scans


async def test_a_scan_of_few_records_in_a_large_database_ends(redis_url: str, store: Any) -> None:
    async with table(redis_url) as many:
        await many.apply([put(f"{index}") for index in range(1500)])
        await store.apply([put(f"{index}") for index in range(5)])
        assert len(await scanned(store, limit=1)) == 5
        assert len(await pages(store, Scan(10))) <= 3
        for limit in (7, 100, 999, 10_000):
            found = await pages(many, Scan(limit))
            assert {key for page in found for key, _ in page.records} == {f"{index}" for index in range(1500)}
            assert len(found) <= 2 + 1500 / max(1, limit // 2)


@pytest.mark.parametrize("bytes_max", [20_000, 400_000, 2**23])
@pytest.mark.parametrize("limit", [600, 1500, 10_000])
async def test_pages_that_end_anywhere_have_every_record(store: Any, limit: int, bytes_max: int) -> None:
    """A page ends at its limit of records, before or among the records of a SCAN, or at its limit of bytes."""
    await store.apply([put(f"{index}", {"text": "x" * (index % 7 * index % 300)}) for index in range(4000)])
    found = await pages(store, Scan(limit, bytes_max=bytes_max))
    keys = [key for page in found for key, _ in page.records]
    assert sorted(keys) == sorted(f"{index}" for index in range(4000))
    assert all(len(page.records) <= limit for page in found)
    assert [record for page in found for _, record in page.records] == await store.apply(list(map(Get, keys)))


# Settings


async def test_the_prefix_of_a_table_can_be_chosen(redis_url: str, tool: Any) -> None:
    async with table(redis_url, TableSpec("t", options=RedisTableOptions(prefix="app/[users]*/"))) as store:
        await written(store, put("a", {"n": 1}))
        await tool.set("app/u*/b", "{}")
        assert await tool.exists("app/[users]*/a") == 1
        assert await scanned(store) == ["a"]
        await written(store, Delete("a"))


@pytest.mark.parametrize("prefix", ["", "_", "_t", "_ts", "_ts:", "_tsx", "a\0b", "a\n"])
def test_a_prefix_that_conflicts_with_side_keys_is_rejected(prefix: str) -> None:
    with pytest.raises(ValidationError):
        RedisTableOptions(prefix=prefix)


async def test_tables_over_tls(tmp_path: Path) -> None:
    authority, port = Authority(tmp_path / "tls"), free_port()
    signed = authority.sign("redis")
    own = ["--tls-cert-file", str(signed.certificate), "--tls-key-file", str(signed.key), "--tls-auth-clients", "no"]
    url = f"rediss://{HOST}:{port}/1?ssl_ca_certs={authority.certificate}"
    with redis(tmp_path, arguments=["--tls-port", str(port), *own]):
        async with table(url, connections_max=2) as store:
            values = {f"{index}": {"text": "x" * (index * 50)} for index in range(1000)}
            for _ in range(2):
                await store.apply([put(key, value) for key, value in values.items()])
                found = await store.apply([Get(key) for key in values])
                assert [record.value for record in found] == [text(**value) for value in values.values()]


async def test_tokens_are_unsupported_if_the_server_may_evict_keys(own_redis_url: str) -> None:
    async with configured(own_redis_url, **{"maxmemory-policy": "volatile-lru"}), table(own_redis_url) as store:
        assert (store.capabilities.tokens, store.capabilities.generations) == (False, True)
        token = Token("w", 1)
        outcomes = await store.apply(
            [put("a", token=token), update("b", {}, {}, token=token), Delete("c", token=token), put("d"), Get("d")]
        )
        assert all(refused(outcome, Unsupported) for outcome in outcomes[:3])
        assert isinstance(outcomes[3], Written)
        assert await scanned(store) == ["d"]
    async with configured(own_redis_url, **{"maxmemory-policy": "allkeys-lru"}), table(own_redis_url) as store:
        assert not store.capabilities.generations


async def test_passwords_are_used_and_never_shown(own_redis_url: str, caplog: pytest.LogCaptureFixture) -> None:
    bare = own_redis_url.removeprefix("redis://")
    async with configured(own_redis_url, requirepass="geheim"):
        given: list[dict[str, Any]] = [
            {"url": f"redis://:geheim@{bare}"},
            {"url": own_redis_url, "password": "geheim"},
            {"url": own_redis_url, "username": "default", "password": "geheim"},
        ]
        for settings in given:
            assert "geheim" not in repr(RedisSettings.model_validate(settings))
            async with table(**settings) as store:
                await written(store, put("a"))
        async with Redis.from_url(f"redis://:geheim@{bare}") as client:
            await client.config_set("requirepass", "")
    assert "geheim" not in caplog.text


async def test_the_documented_permissions_are_sufficient(own_redis_url: str) -> None:
    commands = (
        "get mget set mset getrange setrange exists unlink pexpireat pexpiretime persist time eval evalsha "
        "zadd zrem zscore zcard zrange scan info ping sadd smembers"
    )
    simple: Any = own(TableSpec("t", create=True))
    composite: Any = own(TableSpec("visits", COMPOSITE), exclusive=True)
    allowed = " ".join(f"+{command}" for command in commands.split())
    places = [*(f"{spec.options.prefix}*" for spec in (simple, composite)), "_ts*"]
    tables: list[tuple[TableSpec, list[Key]]] = [(simple, [*"abcde"]), (composite, [("u", day) for day in range(5)])]
    async with user(own_redis_url, allowed, places) as settings, connected(own_redis_url, **settings) as backend:
        for spec, keys in tables:
            store, token = await backend.store(spec), Token("w", 1)
            writes: list[Operation] = [
                put(keys[0], {"n": 1}, ttl_s=100),
                put(keys[1], {"n": 1}, token=token),
                update(keys[2], {"n": 1}, {}, ttl_s=100, token=token),
                Delete(keys[3]),
                Delete(keys[4], token=token),
            ]
            for _ in range(2):
                assert {type(outcome) for outcome in await store.apply(writes)} == {Written}
            await store.apply([put(keys[1], {}), put(keys[2], {}), update(keys[0], {})])
            assert {*await scanned(store)} == {*keys[:3]}
        assert await scanned(store, partition="u") == keys[:3]
        assert "t" in await backend.tables()


async def test_puts_set_their_expiry_without_the_permission_for_pexpireat(own_redis_url: str) -> None:
    spec: Any = own(TableSpec("t"))
    allowed = "+@all -pexpireat"
    async with user(own_redis_url, allowed, ["*"]) as settings, connected(own_redis_url, **settings) as backend:
        store = await backend.store(spec)
        outcomes: Any = await store.apply([put(key, ttl_s=100) for key in "ab"])
        assert [outcome.expires_ms for outcome in outcomes] == [(await record(store, key)).expires_ms for key in "ab"]
        assert (await record(store, "a")).expires_ms > 0


# Responses of a server


async def test_scripts_are_loaded_again_after_a_flush(store: Any, tool: Any) -> None:
    for operations in ([Get("a")], [put("a", {"n": 1})], [update("a", {"$inc": {"n": 1}}), Get("b"), put("c")]):
        await tool.script_flush()
        assert not any(isinstance(outcome, TableError) for outcome in await store.apply(operations))
    assert await value(store, "a") == {"n": 2}
