"""Indexes of partitions on a real Redis: every write updates them, and scans of a partition need nothing else."""

import asyncio
import contextlib
import itertools
import threading
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from redis.asyncio import Redis

from contract import COMPOSITE, STRINGS, one, put, scanned, update, written
from support.redis_tables import configured, connected, table, user
from support.running import running
from tableside.core.errors import InvalidOperation, StoreUnavailable
from tableside.core.keys import KeySchema
from tableside.core.operations import Delete, Key, Operation, Token
from tableside.core.store import Store, TableSpec
from tableside.stores.redis.scripts import EXPIRED_MAX
from tableside.stores.redis.settings import RedisTableOptions

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def redis_url(own_redis_url: str) -> str:
    return own_redis_url


@pytest.fixture
async def tool(tool: Any) -> Any:
    """Another tool. The database is empty before each test."""
    await tool.flushall()
    return tool


def visits(key: KeySchema = COMPOSITE, **options: Any) -> TableSpec:
    return TableSpec("visits", key, options=RedisTableOptions.model_validate(options))


@pytest.fixture(params=[False, True], ids=["shared", "exclusive"])
async def store(request: pytest.FixtureRequest, tool: Any, redis_url: str) -> AsyncIterator[Any]:
    async with table(redis_url, visits(exclusive=request.param)) as opened:
        yield opened


@pytest.fixture
async def exclusive(tool: Any, redis_url: str) -> AsyncIterator[Any]:
    async with table(redis_url, visits(exclusive=True)) as opened:
        yield opened


def days(members: Sequence[bytes]) -> list[int]:
    return [int.from_bytes(member, "big") - 2**63 for member in members]


async def indexed(tool: Any, user: str = "u") -> list[int]:
    """Return the days in the index of a user's partition."""
    return days(await tool.zrange(f"_tsi:visits:{user}:", 0, -1))


async def stored(tool: Any, user: str = "u") -> list[int]:
    """Return the days that have a record."""
    start = f"visits:{user}:"
    return sorted([int(name.removeprefix(start.encode())) async for name in tool.scan_iter(f"{start}*")])


async def in_partition(store: Store, user: str = "u", **scan: Any) -> list[int]:
    return [key[1] for key in await scanned(store, partition=user, **scan)]  # type: ignore[index,misc]  # composite


# Writes


async def test_every_write_updates_the_index(store: Any, tool: Any) -> None:
    async def then(operation: Operation, *expected: int) -> None:
        await one(store, operation)
        assert await indexed(tool) == list(expected), operation
        assert await stored(tool) == list(expected)

    etag = (await written(store, put(("u", 5)))).etag or ""
    await then(put(("u", -3)), -3, 5)
    await then(put(("u", 7), if_absent=True), -3, 5, 7)
    await then(put(("u", 7), {"n": 1}, if_absent=True), -3, 5, 7)
    await then(put(("u", 8), if_match=(etag,)), -3, 5, 7)
    await then(put(("u", 5), {"n": 1}, if_match=(etag,)), -3, 5, 7)
    await then(update(("u", 1), {"$inc": {"n": 1}}, {"n": 0}), -3, 1, 5, 7)
    await then(update(("u", 2), {"$inc": {"n": 1}}), -3, 1, 5, 7)
    await then(update(("u", 2), {"n": 1}, {}, token=Token("w", 1)), -3, 1, 2, 5, 7)
    await then(put(("u", 3), token=Token("w", 1)), -3, 1, 2, 3, 5, 7)
    await then(Delete(("u", 2), token=Token("w", 2)), -3, 1, 3, 5, 7)
    await then(Delete(("u", 5)), -3, 1, 3, 7)
    await then(Delete(("u", 9)), -3, 1, 3, 7)
    await then(Delete(("u", 1), if_match=("no such etag",)), -3, 1, 3, 7)
    await then(Delete(("u", 1), if_match=("*",)), -3, 3, 7)
    await then(put(("u", 3), ttl_s=100), -3, 3, 7)
    await then(update(("u", 3), {"n": 2}), -3, 3, 7)
    await then(put(("other", 1)), -3, 3, 7)
    await store.apply([Delete(("u", day)) for day in (-3, 3, 7)])
    assert not await tool.exists("_tsi:visits:u:", "_tsx:visits:u:")


async def test_after_concurrent_writes_the_index_matches_the_records(tool: Any, redis_url: str) -> None:
    async with connected(redis_url) as here, connected(redis_url) as there:
        stores = [await here.store(visits()), await there.store(visits())]

        async def write(number: int) -> None:
            for turn in range(40):
                key = ("u", (number * 7 + turn * 3) % 23)
                operations: list[Operation] = [
                    put(key),
                    Delete(key),
                    update(key, {"$inc": {"n": 1}}, {"n": 0}),
                    put(key, ttl_s=0.001),
                    Delete(key, token=Token(f"w{number}", turn)),
                ]
                await one(stores[number % 2], operations[(number + turn) % len(operations)])
                if turn % 8 == number % 8:  # A scan cleans the index.
                    await in_partition(stores[number % 2])

        await asyncio.gather(*map(write, range(16)))
        await asyncio.sleep(0.01)
        kept = await stored(tool)
        assert set(kept) <= set(await indexed(tool))
        assert await in_partition(stores[0]) == kept
        assert await indexed(tool) == kept


def test_after_a_kill_the_index_matches_the_records(tmp_path: Path, redis_url: str) -> None:
    config = tmp_path / "service.yaml"
    config.write_text(f"""
stores: {{cache: {{kind: redis, url: "{redis_url}"}}}}
tables: {{visits: {{store: cache, key: {{user: string, day: integer}}}}}}
""")
    with running(tmp_path, config) as service, ThreadPoolExecutor(4) as pool:
        acknowledged = threading.Event()

        def write(number: int) -> None:
            with httpx.Client(base_url=service.url) as client, contextlib.suppress(httpx.TransportError):
                for turn in itertools.count():
                    operations: list[dict[str, Any]] = [
                        {"op": "put", "key": ["killed", at], "value": {}}
                        if (turn + at) % 3
                        else {"op": "delete", "key": ["killed", at]}
                        for at in range(number, 2000, 7)
                    ]
                    client.post("/v1/tables/visits/batch", json={"operations": operations})
                    acknowledged.set()

        writers = [pool.submit(write, number) for number in range(4)]
        assert acknowledged.wait(60)
        service.kill()
        for writer in writers:
            writer.result()

    async def compare() -> None:
        async with Redis.from_url(redis_url) as client:
            kept = await stored(client, "killed")
            assert kept
            assert await indexed(client, "killed") == kept

    asyncio.run(compare())


# Expiry


async def test_a_scan_removes_expired_records_from_the_index(store: Any, tool: Any) -> None:
    await store.apply([put(("u", day), ttl_s=0.02 if day % 2 else None) for day in range(41)])
    await tool.pexpire("visits:u:40", 10)  # like another tool
    assert len(await indexed(tool)) == 41
    await asyncio.sleep(0.05)
    assert await in_partition(store) == list(range(0, 40, 2))
    assert await indexed(tool) == list(range(0, 40, 2))
    assert not await tool.exists("_tsx:visits:u:")


async def test_writes_remove_expired_records_from_an_index_that_no_scan_reads(store: Any, tool: Any) -> None:
    await store.apply([put(("u", day), ttl_s=0.02) for day in range(4 * EXPIRED_MAX)] + [put(("u", -1))])
    await asyncio.sleep(0.05)
    for day in range(4):
        await written(store, put(("u", 1000 + day), ttl_s=100))
        assert len(await indexed(tool)) == (3 - day) * EXPIRED_MAX + day + 2
    await written(store, put(("u", 2000)))
    assert await indexed(tool) == [-1, 1000, 1001, 1002, 1003, 2000]


async def test_an_index_expires_with_the_last_of_its_records(store: Any, tool: Any) -> None:
    async def expiry() -> tuple[int, int]:
        return await tool.pexpiretime("_tsi:visits:u:"), await tool.pexpiretime("_tsx:visits:u:")

    early = (await written(store, put(("u", 1), ttl_s=100))).expires_ms
    late = (await written(store, put(("u", 2), ttl_s=200, token=Token("w", 1)))).expires_ms
    assert await expiry() == (late, late)
    await written(store, Delete(("u", 2)))
    assert await expiry() == (early, early)
    await written(store, put(("u", 3)))
    assert await expiry() == (-1, -1)
    assert (await written(store, update(("u", 1), {"n": 1}))).expires_ms == early
    assert await expiry() == (-1, -1)
    await written(store, Delete(("u", 3)))
    assert await expiry() == (early, early)
    await written(store, update(("u", 1), {"n": 1}, ttl_s=-1))
    assert await expiry() == (-1, -2)
    assert await in_partition(store) == [1]


# Records without an index


async def test_a_table_that_has_no_index_yet_is_scanned_in_order(store: Any, tool: Any) -> None:
    await tool.mset({f"visits:{user}:{day}": "{}" for user in ("u", "v") for day in range(-20, 700, 3)})
    await written(store, put(("u", 0)))
    await tool.mset({"visits:u:x": "{}", "visits:u:1:2": "{}", "visits:u": "{}"})
    everything = sorted({*range(-20, 700, 3), 0})
    for limit in (7, 10_000):
        assert await in_partition(store, limit=limit) == everything
    assert await in_partition(store, "v") == list(range(-20, 700, 3))
    assert await in_partition(store, "w") == []
    assert await indexed(tool) == everything


async def test_a_record_that_another_tool_adds_is_scanned_unless_the_table_is_exclusive(store: Any, tool: Any) -> None:
    await store.apply([put(("u", day)) for day in (1, 3)])
    assert await in_partition(store) == [1, 3]
    await tool.set("visits:u:2", '{"n": 1}')
    exclusive = store.capabilities.partition_scan
    assert await in_partition(store) == ([1, 3] if exclusive else [1, 2, 3])
    await tool.delete("_tsc:visits:")  # The documented way to complete the indexes again.
    assert await in_partition(store) == [1, 2, 3]


# Cost


async def commands_of(tool: Any, store: Store) -> dict[str, int]:
    """Return how often each command runs for a scan of a partition."""
    await tool.config_resetstat()
    assert await in_partition(store, limit=100) == list(range(50))
    statistics = await tool.info("commandstats")
    return {name.removeprefix("cmdstat_"): found["calls"] for name, found in statistics.items() if "config" not in name}


async def test_the_cost_of_a_scan_does_not_depend_on_the_size_of_the_database(exclusive: Any, tool: Any) -> None:
    await exclusive.apply([put(("u", day)) for day in range(50)])
    assert await in_partition(exclusive) == list(range(50))
    few = await commands_of(tool, exclusive)
    await tool.mset({f"filler:{index}": "" for index in range(20_000)})
    await exclusive.apply([put((f"u{user}", day)) for user in range(50) for day in range(50)])
    assert await commands_of(tool, exclusive) == few
    assert "scan" not in few


# Configuration


@pytest.mark.parametrize(
    ("key", "options", "words"),
    [
        (STRINGS, {"exclusive": True}, "composite"),
        (STRINGS, {"hash_tag": True}, "composite"),
        (COMPOSITE, {"hash_tag": True, "prefix": "a{}b:"}, "prefix"),
    ],
    ids=["exclusive", "hash_tag", "empty braces"],
)
async def test_options_without_effect_are_refused(redis_url: str, key: KeySchema, options: Any, words: str) -> None:
    async with connected(redis_url) as backend:
        with pytest.raises(InvalidOperation, match=words):
            await backend.store(visits(key, **options))


async def test_names_with_a_hash_tag_are_read_again(tool: Any, redis_url: str) -> None:
    async with table(redis_url, visits(hash_tag=True)) as store:
        keys: list[Key] = [("{a}:%", 1), ("}{", 2), ("a", 3)]
        await store.apply([put(key) for key in keys])
        assert await tool.exists("visits:{%7Ba%7D%3A%25}:1", "visits:{%7D%7B}:2", "visits:{a}:3") == 3
        await tool.mset({"visits:b:1": "{}", "visits:{b:1": "{}", "visits:b}:1": "{}", "visits:{}:1": "{}"})
        assert set(await scanned(store)) == set(keys)
        assert set(await scanned(store, prefix="{a")) == {keys[0]}
        for key in keys:
            assert await scanned(store, partition=key[0]) == [key]  # type: ignore[index]  # composite


async def test_if_the_server_may_evict_keys_each_scan_checks_the_index(tool: Any, redis_url: str) -> None:
    eviction = {"maxmemory-policy": "allkeys-lru"}
    async with configured(redis_url, **eviction), table(redis_url, visits(exclusive=True)) as store:
        assert not store.capabilities.partition_scan
        await store.apply([put(("u", day)) for day in range(3)])
        assert await in_partition(store) == [0, 1, 2]
        await tool.delete("_tsi:visits:u:")
        assert await in_partition(store) == [0, 1, 2]


@asynccontextmanager
async def read_only(tool: Any) -> AsyncIterator[None]:
    """Let the server be a replica of none, which rejects writes."""
    await tool.config_set("repl-diskless-load", "disabled")
    await tool.replicaof("127.0.0.1", 1)
    try:
        yield
    finally:
        await tool.replicaof("NO", "ONE")


async def test_a_replica_is_scanned_and_cannot_complete_an_index(store: Any, tool: Any) -> None:
    await store.apply([put(("u", day)) for day in range(3)])
    assert await in_partition(store) == [0, 1, 2]
    await tool.delete("visits:u:1")
    async with read_only(tool):
        assert await in_partition(store) == [0, 2]
        assert await indexed(tool) == [0, 1, 2]
    await tool.delete("_tsi:visits:u:", "_tsc:visits:")
    async with read_only(tool):
        with pytest.raises(StoreUnavailable):
            await in_partition(store)
    assert await in_partition(store) == [0, 2]


@pytest.mark.parametrize("command", ["zadd", "zrem", "zrange", "pexpireat", "persist"])
async def test_a_write_is_rejected_before_it_changes_a_record_if_the_index_may_not_be_written(
    tool: Any, redis_url: str, command: str
) -> None:
    await tool.set("visits:p:1", '{"n":0}')
    writes: list[Operation] = [
        update(("p", 1), {"$inc": {"n": 1}}, {"n": 0}, token=Token("w", 1)),
        put(("p", 2), {"n": 9}, ttl_s=100, token=Token("w", 1)),
        put(("p", 3), {"n": 9}),
        Delete(("p", 1)),
    ]
    async with user(redis_url, f"+@all -{command}") as settings, table(redis_url, visits(), **settings) as store:
        rejected = [await one(store, write) for write in writes]
    assert {getattr(outcome, "applied", outcome) for outcome in rejected} == {"no"}
    assert await tool.keys("visits:*") == [b"visits:p:1"]
    assert await tool.get("visits:p:1") == b'{"n":0}'
