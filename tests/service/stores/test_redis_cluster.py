"""The shared suite on the Redis store with a real cluster of three masters, and tests of cluster features."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import RedisError

from contract import (
    COMPOSITE,
    Basics,
    Expiry,
    KeysAndValues,
    Orders,
    PartitionScans,
    Preconditions,
    Scans,
    Time,
    Tokens,
    Updates,
    one,
    pages,
    put,
    scanned,
    update,
    value,
)
from contract.opening import Opens
from servers.redis import redis_cluster
from support.redis_tables import connected, own, redis_key, table
from tableside.core.budget import Budget
from tableside.core.errors import InvalidOperation, StoreUnavailable
from tableside.core.operations import Get, Record, Token, Written
from tableside.core.store import Scan, Store, TableSpec
from tableside.stores.redis.keys import slot_of

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def redis_cluster_urls(own_redis_cluster_urls: list[str]) -> list[str]:
    return own_redis_cluster_urls


class OnCluster(Opens):
    clock_can_be_set = False
    partitions_are_sorted = False

    @pytest.fixture(autouse=True)
    def _servers(self, redis_cluster_urls: list[str]) -> None:
        self.url = redis_cluster_urls[0]

    def opened(self, spec: TableSpec, time: Time, directory: Path) -> AbstractAsyncContextManager[Store]:
        return table(self.url, spec, cluster=True)


class TestRedisCluster(OnCluster, Basics, Tokens, Scans):
    """Calls of many records, which are on several nodes, and records with a side key."""


@pytest.mark.daily
class TestTheRestOnCluster(OnCluster, KeysAndValues, Updates, Preconditions, Expiry, Orders):
    """Features that are the same on a single server."""


class TestTaggedPartitions(PartitionScans):
    """With `hash_tag`, a cluster scans partitions in sort order."""

    clock_can_be_set = False

    @pytest.fixture(autouse=True, params=[False, True], ids=["shared", "exclusive"])
    def _options(self, redis_cluster_urls: list[str], request: pytest.FixtureRequest) -> None:
        self.url = redis_cluster_urls[0]
        self.options = {"hash_tag": True, "exclusive": request.param}

    def opened(self, spec: TableSpec, time: Time, directory: Path) -> AbstractAsyncContextManager[Store]:
        return table(self.url, own(spec, **self.options), cluster=True)


@pytest.fixture
async def store(redis_cluster_urls: list[str]) -> AsyncIterator[Any]:
    async with table(redis_cluster_urls[0], cluster=True) as opened:
        yield opened


@asynccontextmanager
async def own_cluster(directory: Path) -> AsyncIterator[tuple[list[str], list[Any]]]:
    """A cluster whose slots a test may move, and a client of each node."""
    with redis_cluster(directory) as urls:
        async with AsyncExitStack() as stack:
            yield urls, [await stack.enter_async_context(Redis.from_url(url)) for url in urls]


class Move:
    """A slot that moves from one node to another, as with `redis-cli --cluster reshard`."""

    def __init__(self, slot: int, urls: list[str], clients: list[Any]) -> None:
        self.slot, self.clients = slot, clients
        self.source = next(at for at in range(3) if at * 16384 // 3 <= slot < (at + 1) * 16384 // 3)
        self.target = (self.source + 1) % 3
        self.port = int(urls[self.target].rpartition(":")[2].partition("/")[0])

    async def begin(self) -> None:
        self.ids = [(await client.execute_command("CLUSTER", "MYID")).decode() for client in self.clients]
        await self._set(self.target, "IMPORTING", self.ids[self.source])
        await self._set(self.source, "MIGRATING", self.ids[self.target])

    async def keys(self, count: int) -> None:
        """Move some keys."""
        client = self.clients[self.source]
        for key in await client.execute_command("CLUSTER", "GETKEYSINSLOT", self.slot, count):
            assert await client.execute_command("MIGRATE", "127.0.0.1", self.port, key, 0, 5000) == b"OK"

    async def end(self) -> None:
        for node in (self.target, self.source, 3 - self.source - self.target):
            await self._set(node, "NODE", self.ids[self.target])

    async def _set(self, node: int, *words: Any) -> None:
        await self.clients[node].execute_command("CLUSTER", "SETSLOT", self.slot, *words)


async def test_keys_with_a_hash_tag_are_preserved(store: Any) -> None:
    keys = ["{a}b", "a}b", "{}", "}{", "{", "a{b}c}", "}", "{a}c"]
    increments = [update(key, {"$inc": {"n": 1}}, {"n": 0}, token=Token("w", 1)) for key in keys]
    for replayed in (False, True):
        outcomes = await store.apply(increments)
        assert [outcome.replayed for outcome in outcomes if isinstance(outcome, Written)] == [replayed] * len(keys)
    assert set(await scanned(store)) == set(keys)


async def test_a_slot_may_move_while_it_is_read_and_written(tmp_path: Path) -> None:
    async with own_cluster(tmp_path) as (urls, clients), table(urls[0], cluster=True) as store:
        keys = [f"{{tag}}{index}" for index in range(60)]
        increments = [update(key, {"$inc": {"n": 1}}, {"n": 0}, token=Token("w", 0)) for key in keys]
        await store.apply(increments)
        move = Move(slot_of("{tag}"), urls, clients)
        acknowledged, stop = dict.fromkeys(keys, 1), asyncio.Event()

        async def writes(some: list[str]) -> None:
            while not stop.is_set():
                outcomes = await store.apply([update(key, {"$inc": {"n": 1}}) for key in some], Budget(loop.time() + 5))
                for key, outcome in zip(some, outcomes, strict=True):
                    assert isinstance(outcome, Written), outcome
                    acknowledged[key] += 1

        async def reads() -> None:
            while not stop.is_set():
                assert all(
                    isinstance(found, Record)
                    for found in await store.apply(list(map(Get, keys)), Budget(loop.time() + 5))
                )
                await one(store, put("elsewhere"))

        loop = asyncio.get_running_loop()
        tasks = [asyncio.create_task(work) for work in (writes(keys[:20]), writes(keys[20:40]), reads())]
        await asyncio.sleep(0.1)
        await move.begin()
        for _ in range(13):
            await move.keys(10)
            await asyncio.sleep(0.02)
        await move.end()
        await asyncio.sleep(0.2)
        stop.set()
        await asyncio.gather(*tasks)
        for key, count in acknowledged.items():
            assert await value(store, key) == {"n": count}
        assert all(outcome.replayed for outcome in await store.apply(increments))


async def test_a_scan_loses_nothing_to_slots_that_move(tmp_path: Path) -> None:
    async with own_cluster(tmp_path) as (urls, clients), table(urls[0], cluster=True) as store:
        keys = [f"{index:03}" for index in range(300)] + [f"{{tag}}{index}" for index in range(50)]
        await store.apply([put(key) for key in keys])
        move = Move(slot_of("{tag}"), urls, clients)
        for when in (0, 1, 5, 12, 20):
            scan, met, page = Scan(11), set(), 0
            while True:
                if page == when:
                    await move.begin()
                    await move.keys(30)
                if page == when + 3:
                    await move.keys(1000)
                    await move.end()
                page += 1
                try:
                    found = await store.scan(scan)
                except StoreUnavailable:
                    continue  # The slot is being moved: request the same page again.
                met |= {key for key, _ in found.records}
                if found.position is None:
                    break
                scan = Scan(11, position=found.position)
            assert met == set(keys)
            if page <= when + 3:
                await move.keys(1000)
                await move.end()
            move.source, move.target = move.target, move.source
            move.port = int(urls[move.target].rpartition(":")[2].partition("/")[0])


@pytest.mark.parametrize("exclusive", [pytest.param(False, marks=pytest.mark.daily), True])
async def test_an_indexed_partition_loses_nothing_to_its_slot_that_moves(tmp_path: Path, exclusive: bool) -> None:
    spec = own(TableSpec("t", COMPOSITE), hash_tag=True, exclusive=exclusive)
    async with own_cluster(tmp_path) as (urls, clients), table(urls[0], spec, cluster=True) as store:
        await store.apply([put(("u", day)) for day in range(60)])
        assert len(await scanned(store, partition="u")) == 60
        move = Move(slot_of("{u}"), urls, clients)
        written_days, stop = list(range(60)), asyncio.Event()

        async def writes() -> None:
            loop = asyncio.get_running_loop()
            while not stop.is_set():
                day = len(written_days)
                [outcome] = await store.apply([put(("u", day))], Budget(loop.time() + 20))
                assert isinstance(outcome, Written), outcome
                written_days.append(day)

        writer = asyncio.create_task(writes())
        await move.begin()
        while await move.clients[move.source].execute_command("CLUSTER", "COUNTKEYSINSLOT", move.slot):
            await move.keys(10)
            await asyncio.sleep(0.01)
        await move.end()
        stop.set()
        await writer
        assert await scanned(store, partition="u") == [("u", day) for day in written_days]
        assert store.capabilities.partition_scan is exclusive


async def test_a_table_whose_prefix_has_a_hash_tag_is_indexed(redis_cluster_urls: list[str]) -> None:
    async with connected(redis_cluster_urls[0], cluster=True) as backend:
        store = await backend.store(own(TableSpec("t", COMPOSITE), prefix="{visits}:", exclusive=True))
        keys = [("u", day) for day in range(30)]
        await store.apply([put(key) for key in keys])
        assert await scanned(store, partition="u") == keys
        assert store.capabilities.partition_scan
        with pytest.raises(InvalidOperation, match="hash_tag"):
            await backend.store(own(TableSpec("t", COMPOSITE), exclusive=True))


async def test_only_the_records_of_a_lost_node_are_unavailable(tmp_path: Path) -> None:
    async with own_cluster(tmp_path) as (urls, clients), connected(urls[0], cluster=True) as backend:
        store: Any = await backend.store(own(TableSpec("t")))
        keys = [f"{index}" for index in range(60)]
        await store.apply([put(key, {}) for key in keys])
        for client in clients[:2]:
            await client.config_set("cluster-require-full-coverage", "no")
        with contextlib.suppress(RedisError):
            await clients[2].shutdown(nosave=True)
        loop = asyncio.get_running_loop()
        for _ in range(3):
            outcomes = await store.apply([Get(key) for key in keys], Budget(loop.time() + 20))
            lost = {key for key, found in zip(keys, outcomes, strict=True) if not isinstance(found, Record)}
            assert lost == {key for key in keys if slot_of(redis_key(store, key)) >= 2 * 16384 // 3}
            assert all(isinstance(found, Record | StoreUnavailable) for found in outcomes)
            outcomes = await store.apply([put(key, {}) for key in keys], Budget(loop.time() + 20))
            assert {key for key, done in zip(keys, outcomes, strict=True) if not isinstance(done, Written)} == lost
        await backend.ping()
        with pytest.raises(StoreUnavailable):
            await pages(store, Scan(10))
