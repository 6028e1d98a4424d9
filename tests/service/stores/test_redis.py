"""The shared suite on the Redis store with a real server, and tests of other tools, options and limits."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from redis.asyncio import Redis

from contract import (
    COMPOSITE,
    INTEGERS,
    STRINGS,
    StoreContract,
    Time,
    etag,
    one,
    pages,
    put,
    record,
    refused,
    scanned,
    update,
    value,
    written,
)
from contract.ordered_writes import KEPT_FOR_S, MEMORY_S
from servers.process import free_port
from servers.redis import redis
from support.redis_tables import connected, own, redis_key, table, user
from tableside.core.errors import (
    InvalidOperation,
    MalformedRequest,
    RecordUnreadable,
    StoreUnavailable,
    TableError,
    Throttled,
    Unsupported,
)
from tableside.core.operations import Delete, Get, Operation, Record, Token, Written
from tableside.core.store import Scan, Store, TableSpec, now_ms
from tableside.stores.redis.keys import KeyNames, side_key
from tableside.stores.redis.settings import RedisSettings, RedisTableOptions

pytestmark = pytest.mark.server


class TestRedis(StoreContract):
    clock_can_be_set = False
    splits_have_several_parts = False

    @pytest.fixture(autouse=True)
    def _server(self, redis_url: str) -> None:
        self.url = redis_url

    def opened(self, spec: TableSpec, time: Time, directory: Path) -> AbstractAsyncContextManager[Store]:
        return table(self.url, spec)


@pytest.fixture
async def store(redis_url: str) -> AsyncIterator[Any]:
    async with table(redis_url) as opened:
        yield opened


@asynccontextmanager
async def configured(url: str, **configuration: str) -> AsyncIterator[Any]:
    async with Redis.from_url(url) as client:
        before = {setting: (await client.config_get(setting))[setting] for setting in configuration}
        for setting, given in configuration.items():
            await client.config_set(setting, given)
        try:
            yield client
        finally:
            for setting, earlier in before.items():
                await client.config_set(setting, earlier or "")


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


async def test_a_record_of_another_tool_is_read_and_written(store: Any, tool: Any) -> None:
    await tool.set(redis_key(store, "a"), '{ "n" : 1.0, "s": "x" }\n')
    assert (await record(store, "a")).value == b'{"n":1,"s":"x"}'
    version = await etag(store, "a")
    assert version == await etag(store, "a")
    assert version == (await store.apply([Get("a"), *(Get(f"{index}") for index in range(30))]))[0].etag
    await written(store, update("a", {"$inc": {"n": 1}}, if_match=(version,)))
    assert await value(store, "a") == {"n": 2, "s": "x"}
    assert json.loads(await tool.get(redis_key(store, "a"))) == {"n": 2, "s": "x"}
    assert await etag(store, "a") != version


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


JUNK = [b"", b"junk", b"[1]", b'{"a":', b'{"_ts":1}', b"5", b"\xff\xfe", None]
"""Texts that are no records. None is a key of another type."""


@pytest.mark.parametrize("junk", JUNK, ids=repr)
async def test_an_invalid_record_is_unreadable_and_never_absent(store: Any, tool: Any, junk: bytes | None) -> None:
    async def spoil() -> None:
        await tool.delete(redis_key(store, "a"))
        await (tool.hset(redis_key(store, "a"), "f", "v") if junk is None else tool.set(redis_key(store, "a"), junk))

    await spoil()
    few: list[Operation] = [Get("a"), Get("b"), put("c", {"n": 1})]
    many: list[Operation] = [Get("a"), *(Get(f"absent {index}") for index in range(50)), Get("c")]
    for operations in (few, many):
        outcomes = await store.apply(operations)
        assert refused(outcomes[0], RecordUnreadable)
        assert outcomes[1] is None
        assert isinstance(outcomes[-1], Written | Record)
    conditional: list[Operation] = [
        update("a", {"n": 1}, {}),
        update("a", {"n": 1}),
        put("a", {}, if_absent=True),
        put("a", {}, if_match=("x",)),
        Delete("a", if_match=("*",)),
        update("a", {}, {}, token=Token("w", 1)),
    ]
    for operation in conditional:
        assert refused(await one(store, operation), RecordUnreadable)
    with pytest.raises(RecordUnreadable, match="the scan cannot continue at the key `a`: "):
        await store.scan(Scan(10))
    repairs: list[Operation] = [
        put("a", {"n": 1}),
        put("a", {"n": 2}, token=Token("w", 1)),
        Delete("a"),
        Delete("a", None, Token("w", 2)),
    ]
    for repair in repairs:
        await spoil()
        await written(store, repair)
        assert set(await scanned(store)) == ({"c"} if isinstance(repair, Delete) else {"c", "a"})


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


async def test_concurrent_deletes_of_an_absent_record_remember_all_writers(redis_url: str) -> None:
    async with connected(redis_url) as here, connected(redis_url) as there:
        spec = own(TableSpec("t"))
        stores = [await here.store(spec), await there.store(spec)]
        deletes = [Delete("a", token=Token(f"w{index}", 1)) for index in range(8)]
        for replayed in (False, True):
            works = [written(stores[index % 2], delete) for index, delete in enumerate(deletes)]
            assert [outcome.replayed for outcome in await asyncio.gather(*works)] == [replayed] * 8


async def test_an_invalid_side_key_is_unreadable(store: Any, tool: Any) -> None:
    await written(store, put("a", {"n": 1}))
    for junk in ("junk", "{}", "[1, 2]", '[1, ["w", "x"]]'):
        await tool.set(side_key(redis_key(store, "a")), junk)
        assert refused(await one(store, update("a", {"n": 2}, token=Token("w", 1))), RecordUnreadable)
    await tool.delete(side_key(redis_key(store, "a")))
    await tool.hset(side_key(redis_key(store, "a")), "field", "value")
    assert refused(await one(store, put("a", {"n": 3})), RecordUnreadable)
    assert await value(store, "a") == {"n": 1}


@pytest.mark.parametrize("kind", ["text", "hash"])
async def test_a_record_that_another_tool_makes_unreadable_keeps_its_tokens(store: Any, tool: Any, kind: str) -> None:
    async def spoil() -> None:
        await tool.delete(redis_key(store, "a"))
        await (
            tool.set(redis_key(store, "a"), "[1]")
            if kind == "text"
            else tool.hset(redis_key(store, "a"), "field", "value")
        )

    for token in (Token("v", 9), Token("w", 5)):
        await written(store, put("a", {"n": 1}, token=token))
    await spoil()
    for token in (Token("w", 5), Token("w", 4), Token("v", 9)):
        assert (await written(store, put("a", {"n": 2}, token=token, returning=True))).replayed
    assert refused(await one(store, Get("a")), RecordUnreadable)
    for new in (put("a", {"n": 3}, token=Token("w", 6)), Delete("a", token=Token("w", 7))):
        assert not (await written(store, new)).replayed
        for known in (new.token, Token("v", 9)):
            assert (await written(store, put("a", {"n": 4}, token=known))).replayed
        await spoil()


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


@pytest.mark.parametrize(
    "text", [b"", b"x", b"{}", b"[1]", b'["99999"]', b'["0-5","x"]', b'["0-5","","",-1]'], ids=repr
)
async def test_invalid_positions_and_splits_are_rejected(store: Any, text: bytes) -> None:
    with pytest.raises(MalformedRequest):
        await store.scan(Scan(10, position=text))
    with pytest.raises(MalformedRequest):
        await store.scan(Scan(10, split=text))


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


async def test_created_tables_are_listed(tmp_path: Path) -> None:
    with redis(tmp_path) as url:
        async with connected(url) as backend:
            assert await backend.tables() == []
            await backend.store(TableSpec("given"))
            for table in ("b", "a", "b"):
                await backend.store(TableSpec(table, create=True))
        async with connected(url) as backend:
            assert await backend.tables() == ["a", "b"]


async def test_tokens_are_unsupported_if_the_server_may_evict_keys(own_redis_url: str) -> None:
    async with configured(own_redis_url, **{"maxmemory-policy": "volatile-lru"}), table(own_redis_url) as store:
        assert not store.capabilities.tokens
        token = Token("w", 1)
        outcomes = await store.apply(
            [put("a", token=token), update("b", {}, {}, token=token), Delete("c", token=token), put("d"), Get("d")]
        )
        assert all(refused(outcome, Unsupported) for outcome in outcomes[:3])
        assert isinstance(outcomes[3], Written)
        assert await scanned(store) == ["d"]


@pytest.mark.parametrize(("policy", "possible"), [("volatile-lru", True), ("allkeys-lru", False)])
async def test_a_server_that_evicts_any_key_has_no_generations(
    own_redis_url: str, policy: str, *, possible: bool
) -> None:
    async with configured(own_redis_url, **{"maxmemory-policy": policy}), table(own_redis_url) as store:
        assert store.capabilities.generations == possible


async def test_a_single_server_is_rejected_as_a_cluster(redis_url: str, redis_cluster_urls: list[str]) -> None:
    async with connected(redis_url, cluster=True) as backend:
        with pytest.raises(InvalidOperation, match="cluster"):
            await backend.store(TableSpec("t"))
    async with connected(redis_cluster_urls[0]) as backend:
        with pytest.raises(InvalidOperation, match="cluster"):
            await backend.store(TableSpec("t"))


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
        for wrong in (
            {"url": own_redis_url},
            {"url": f"redis://:anders@{bare}"},
            {"url": own_redis_url, "password": "anders"},
        ):
            async with connected(**wrong) as backend:
                with pytest.raises(StoreUnavailable, match="authentication") as refusal:
                    await backend.ping()
                assert "anders" not in refusal.value.detail
        async with Redis.from_url(f"redis://:geheim@{bare}") as client:
            await client.config_set("requirepass", "")
    assert "geheim" not in caplog.text


def test_names_of_keys_are_distinct() -> None:
    names = KeyNames("p:", COMPOSITE)
    keys = [("a", 1), ("a:1", 1), ("a%3A1", 1), ("a%", -1), ("ü:%", 0)]
    written_names = names.for_keys(keys)
    assert len(set(written_names)) == len(keys)
    assert [names.to_key(one_name.encode()) for one_name in written_names] == keys
    assert KeyNames("p:", STRINGS).for_keys(["a:%b"]) == ["p:a:%b"]


# Responses of a server


async def test_scripts_are_loaded_again_after_a_flush(store: Any, tool: Any) -> None:
    for operations in ([Get("a")], [put("a", {"n": 1})], [update("a", {"$inc": {"n": 1}}), Get("b"), put("c")]):
        await tool.script_flush()
        assert not any(isinstance(outcome, TableError) for outcome in await store.apply(operations))
    assert await value(store, "a") == {"n": 2}


async def test_a_server_without_memory_throttles_writes_and_still_reads_and_deletes(own_redis_url: str) -> None:
    async with table(own_redis_url) as store:
        await store.apply([put("a", {"n": 1}), put("d", token=Token("w", 1))])
        async with configured(own_redis_url, maxmemory="1"):
            for outcome in await store.apply([put("a", {}), update("b", {}, {}), put("c", token=Token("w", 1))]):
                assert isinstance(outcome, Throttled)
                assert (outcome.applied, outcome.retriable) == ("no", True)
            assert await value(store, "a") == {"n": 1}
            assert {type(outcome) for outcome in await store.apply([Delete("a"), Delete("d")])} == {Written}
        assert await scanned(store) == []


async def test_writes_to_a_read_only_replica_fail(own_redis_url: str) -> None:
    async with table(own_redis_url) as store, Redis.from_url(own_redis_url) as client:
        await written(store, put("a", {"n": 1}))
        await client.config_set("repl-diskless-load", "disabled")
        await client.replicaof("127.0.0.1", free_port())
        try:
            assert await value(store, "a") == {"n": 1}
            for operation in (put("a", {"n": 2}), update("a", {"n": 2}), Delete("a"), Delete("a", token=Token("w", 1))):
                outcome = await one(store, operation)
                assert isinstance(outcome, StoreUnavailable), outcome
                assert outcome.applied == "no"
        finally:
            await client.replicaof("NO", "ONE")
        assert await value(store, "a") == {"n": 1}


async def test_the_documented_permissions_are_sufficient(own_redis_url: str) -> None:
    commands = "get mget set mset getrange setrange exists unlink pexpireat pexpiretime persist time eval evalsha"
    allowed = " ".join(f"+{command}" for command in f"{commands} scan info ping sadd smembers".split())
    spec: Any = own(TableSpec("t", create=True))
    keys = [f"{spec.options.prefix}*", "_ts*"]
    async with user(own_redis_url, allowed, keys) as settings, connected(own_redis_url, **settings) as backend:
        store = await backend.store(spec)
        assert "t" in await backend.tables()
        every: list[Operation] = [
            put("a", {"n": 1}, ttl_s=100),
            put("b", {"n": 1}, token=Token("w", 1)),
            update("c", {"n": 1}, {}, ttl_s=100, token=Token("w", 1)),
            Delete("d"),
            Delete("e", token=Token("w", 1)),
        ]
        for _ in range(2):
            assert all(isinstance(outcome, Written) for outcome in await store.apply(every))
        await store.apply([put("b", {}), put("c", {}), update("a", {})])
        assert await store.apply([Get(f"{i}") for i in range(50)]) == [None] * 50
        assert set(await scanned(store)) == {"a", "b", "c"}
        forbidden = await backend.store(TableSpec("elsewhere"))
        for operation in (Get("a"), put("a"), update("a", {}, {})):
            outcome = await one(forbidden, operation)
            assert isinstance(outcome, StoreUnavailable), outcome
            assert outcome.applied == "no"
