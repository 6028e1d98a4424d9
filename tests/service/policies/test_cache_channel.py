"""Replicas invalidate each other's caches over a real Redis that is disconnected, killed and restarted."""

import asyncio
import contextlib
import logging
import math
import subprocess
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
from prometheus_client import CollectorRegistry
from redis.asyncio import Redis

from contract import put, text
from servers.install import ensure_command
from servers.process import HOST, free_port
from servers.proxy import FaultProxy
from support.scripted import Scripted
from tableside.core.budget import NO_DEADLINE, Budget
from tableside.core.errors import InvalidOperation, StoreUnavailable
from tableside.core.operations import Delete, Get, Key, Operation, Outcome, Record
from tableside.core.store import TableSpec
from tableside.policies.cache import Cache
from tableside.policies.cache.channel import Channel
from tableside.policies.cache.messages import (
    KEYS_MAX,
    PendingInvalidations,
    decode_message,
)
from tableside.policies.metrics import PolicyMetrics
from tableside.stores.memory import MemoryStore
from tableside.stores.redis.settings import RedisSettings

pytestmark = pytest.mark.server

SOON_S = 5.0


@pytest.fixture(scope="module")
def redis_url(own_redis_url: str) -> str:
    return own_redis_url


def n(number: int) -> bytes:
    return text(n=number)


def connection(url: str, **rest: Any) -> dict[str, Any]:
    return RedisSettings.model_validate({"url": url, **rest}).connection()


async def until(condition: Callable[[], bool], within_s: float = SOON_S) -> float:
    """Wait until the condition is true, and return how long that took in seconds."""
    began = asyncio.get_running_loop().time()
    async with asyncio.timeout(within_s):
        while not condition():
            await asyncio.sleep(0.005)
    return asyncio.get_running_loop().time() - began


class Replica:
    """A cache with its own invalidation channel, around a store that all replicas share."""

    def __init__(
        self, store: MemoryStore, channel: Channel, registry: CollectorRegistry, metrics: PolicyMetrics
    ) -> None:
        self.store = Scripted(store)
        self.channel = channel
        self.registry = registry
        options: dict[str, Any] = {"records_max": 30_000, "bytes_max": 2**26, "ttl_s": 1000, "absent_ttl_s": 1000}
        self.cache = Cache(self.store, channel=channel, metrics=metrics, **options)

    async def value(self, key: Key = "a") -> bytes | None:
        outcome = await self.one(Get(key))
        assert outcome is None or isinstance(outcome, Record), outcome
        return None if outcome is None else outcome.value

    async def one(self, operation: Operation) -> Outcome:
        [outcome] = await self.cache.apply([operation])
        return outcome

    def has_cached(self, key: Key = "a") -> bool:
        return key in self.cache._entries._entries

    def shown(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"tableside_cache_{name}", labels)

    def counted(self, direction: str) -> float | None:
        return self.shown("invalidations_total", table="t", direction=direction)


@asynccontextmanager
async def replicas(*urls: str, cluster: bool = False) -> AsyncIterator[list[Replica]]:
    """Open one replica for each URL of the channel's server. Their shared store has the record `a` with n = 0."""
    place = f"t-{uuid.uuid4().hex}"
    store = MemoryStore(TableSpec("t", stored_as=place))
    await store.apply([put("a", {"n": 0})])
    async with contextlib.AsyncExitStack() as stack:
        made = []
        for url in urls:
            registry = CollectorRegistry()
            metrics = PolicyMetrics(registry)
            channel = Channel(connection(url), store="bus", cluster=cluster, connect_timeout_s=0.5, metrics=metrics)
            stack.push_async_callback(channel.close)
            made.append(Replica(store, channel, registry, metrics))
            stack.push_async_callback(made[-1].cache.close)
        await until(lambda: all(replica.channel.up for replica in made))
        yield made


@pytest.fixture
async def pair(redis_url: str) -> AsyncIterator[list[Replica]]:
    async with replicas(redis_url, redis_url) as made:
        yield made


@pytest.fixture
async def tool(redis_url: str) -> AsyncIterator[Any]:
    async with Redis.from_url(redis_url) as client:
        yield client


@asynccontextmanager
async def proxied(redis_url: str) -> AsyncIterator[tuple[FaultProxy, str]]:
    async with FaultProxy.before(redis_url) as proxy:
        yield proxy, proxy.through(redis_url)


# Received invalidations


@pytest.mark.parametrize("write", [put("a", {"n": 1}), Delete("a")], ids=["put", "delete"])
async def test_a_write_of_one_replica_invalidates_the_cache_of_the_other(write: Operation, pair: list[Replica]) -> None:
    one, other = pair
    assert await other.value() == n(0)
    assert other.has_cached()
    await one.one(write)
    await until(lambda: not other.has_cached())
    assert await other.value() == (None if isinstance(write, Delete) else n(1))
    assert (one.counted("sent"), one.counted("received")) == (1, 0)
    assert (other.counted("sent"), other.counted("received")) == (0, 1)
    assert other.shown("records", table="t") == 1


async def test_a_write_is_acknowledged_after_its_invalidation_was_sent(pair: list[Replica], redis_url: str) -> None:
    """After that, only the delivery from Redis to the other replica takes time."""
    one, _ = pair
    async with Redis.from_url(redis_url) as tool, tool.pubsub() as ear:
        await ear.subscribe("tableside:writes:0")
        await ear.get_message(timeout=SOON_S)
        await one.one(put("a", {"n": 1}))
        assert one.counted("sent") == 1
        heard = await ear.get_message(timeout=SOON_S, ignore_subscribe_messages=True)
        message = decode_message(heard["data"])
        assert message is not None
        assert (message.table, message.keys) == (one.cache.spec.name_in_store, ["a"])


async def test_writes_to_other_tables_invalidate_nothing(pair: list[Replica]) -> None:
    one, other = pair
    await other.value()
    stranger = one.channel.subscribe("another", lambda keys: None, lambda: None, lambda count: None)
    stranger.publish(["a"])
    await stranger.flushed(math.inf)
    await asyncio.sleep(0.05)
    assert other.has_cached()


async def test_only_writes_that_may_have_happened_are_sent(pair: list[Replica]) -> None:
    one, other = pair
    await other.value()
    one.store.fault = lambda operation, call: InvalidOperation("x")
    await one.one(put("a", {"n": 1}))
    await asyncio.sleep(0.05)
    assert other.has_cached()
    one.store.fault = lambda operation, call: StoreUnavailable("x", applied="unknown")
    await one.cache.apply([put("a", {"n": 2})])
    await until(lambda: not other.has_cached())
    assert one.counted("sent") == 1


async def test_a_cancelled_write_is_sent(pair: list[Replica]) -> None:
    one, other = pair
    await other.value()
    one.store.takes_s = lambda operations: 10.0
    writing = asyncio.create_task(one.one(put("a", {"n": 1})))
    await asyncio.sleep(0.02)
    writing.cancel()
    await until(lambda: not other.has_cached())


async def test_a_read_in_progress_at_an_invalidation_is_not_cached(pair: list[Replica]) -> None:
    one, other = pair

    class Late(Scripted):
        async def apply(self, operations: Sequence[Operation], budget: Budget = NO_DEADLINE) -> list[Outcome]:
            outcomes = await super().apply(operations, budget)
            await reading.wait()
            return outcomes

    reading = asyncio.Event()
    other.cache._inner = Late(other.store)
    slow = asyncio.create_task(other.value())
    await asyncio.sleep(0.01)
    await one.one(put("a", {"n": 1}))
    await until(lambda: other.counted("received") == 1)
    reading.set()
    assert await slow == n(0)
    assert not other.has_cached()
    assert await other.value() == n(1)


async def test_a_write_through_in_progress_at_an_invalidation_is_not_cached(pair: list[Replica]) -> None:
    one, other = pair
    other.cache._through = True

    class Late(Scripted):
        async def apply(self, operations: Sequence[Operation], budget: Budget = NO_DEADLINE) -> list[Outcome]:
            outcomes = await super().apply(operations, budget)
            await writing.wait()
            return outcomes

    writing = asyncio.Event()
    other.cache._inner = Late(other.store)
    slow = asyncio.create_task(other.one(put("a", {"n": 1})))
    await asyncio.sleep(0.01)
    await one.one(put("a", {"n": 2}))
    await until(lambda: other.counted("received") == 1)
    writing.set()
    await slow
    assert not other.has_cached()
    assert await other.value() == n(2)


async def test_a_very_large_batch_invalidates_the_whole_table(pair: list[Replica]) -> None:
    one, other = pair
    for key in ("a", "kept"):
        await other.value(key)
    await one.cache.apply([put(f"k{number}") for number in range(KEYS_MAX - 1)] + [put("a")])
    await until(lambda: not other.has_cached())
    assert other.has_cached("kept")
    assert (one.counted("sent"), other.counted("received")) == (KEYS_MAX, KEYS_MAX)
    await one.cache.apply([put(f"k{number}") for number in range(KEYS_MAX + 1)])
    await until(lambda: not other.has_cached("kept"))
    assert (one.counted("sent"), other.counted("received")) == (KEYS_MAX + 1, KEYS_MAX + 1)


# When the channel fails


async def killed(tool: Any, kind: str) -> int:
    """Kill the connections of one type with CLIENT KILL, and return their number."""
    count: int = await tool.execute_command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")
    return count


async def test_a_broken_subscription_is_restored_and_empties_the_cache(
    pair: list[Replica], tool: Any, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = pair
    for replica in pair:
        await replica.value()
    caplog.set_level(logging.WARNING)
    assert await killed(tool, "pubsub") >= 2
    await until(lambda: not one.has_cached() and not other.has_cached())
    await until(lambda: one.channel.up and other.channel.up)
    assert other.shown("channel_losses_total", store="bus") == 1
    assert "cache channel bus: no longer receives the writes of other replicas" in caplog.text
    await other.value()
    await one.one(put("a", {"n": 1}))
    await until(lambda: not other.has_cached())


async def test_a_broken_publishing_connection_loses_no_invalidation(pair: list[Replica], tool: Any) -> None:
    one, other = pair
    await other.value()
    assert await killed(tool, "normal") >= 2
    await one.one(put("a", {"n": 1}))
    await until(lambda: not other.has_cached())
    assert await other.value() == n(1)
    await until(lambda: one.channel.up)


async def test_the_channel_reconnects_to_a_restarted_server(tmp_path: Path) -> None:
    port = free_port()
    arguments = ["--port", str(port)]
    url = f"redis://{HOST}:{port}/0"
    with contextlib.ExitStack() as server:
        server.enter_context(running(tmp_path / "first", arguments))
        async with replicas(url, url) as [one, other]:
            await other.value()
            server.close()
            await until(lambda: not one.channel.up and not other.channel.up)
            assert other.shown("channel_up", store="bus") == 0
            assert await other.value() == n(0)
            assert other.has_cached()  # it serves cached records, for `ttl_s` at most
            took_s = []
            for number in range(5):
                began = asyncio.get_running_loop().time()
                await one.one(put(f"k{number}"))
                took_s.append(asyncio.get_running_loop().time() - began)
            await one.one(put("a", {"n": 1}))
            assert max(took_s[1:]) < 0.05  # the channel is known to be down, so the write does not wait
            assert one.counted("sent") == 0
            server.enter_context(running(tmp_path / "second", arguments))
            await until(lambda: one.channel.up and other.channel.up)
            assert not other.has_cached()
            assert await other.value() == n(1)
            assert one.counted("sent") == 6  # the pending invalidations
            assert other.shown("channel_up", store="bus") == 1
            assert other.shown("channel_losses_total", store="bus") == 1


@contextmanager
def running(directory: Path, arguments: list[str]) -> Iterator[None]:
    """Run a Redis on the port in the arguments, without waiting until it is ready."""
    directory.mkdir()
    command = [str(ensure_command("redis-server", "redis-server")), "--bind", HOST, "--save", "", "--appendonly", "no"]
    process = subprocess.Popen([*command, *arguments], cwd=directory, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(10)


async def test_after_a_failover_the_channel_uses_the_new_primary(tmp_path: Path) -> None:
    """The old primary still responds, as a replica, but subscribers at the new one do not receive its messages."""
    ports = [free_port(), free_port()]
    old, new = (f"redis://{HOST}:{port}/0" for port in ports)
    with contextlib.ExitStack() as servers:
        for port in ports:
            servers.enter_context(running(tmp_path / str(port), ["--port", str(port)]))
        async with (
            FaultProxy(HOST, ports[0]) as name,
            replicas(f"redis://{HOST}:{name.port}/0") as [one],
            replicas(new) as [other],
        ):
            name.server = (HOST, ports[1])
            async with Redis.from_url(old) as tool:
                await tool.replicaof(HOST, ports[1])
            place = one.cache.spec.name_in_store
            heard: list[Sequence[Key] | None] = []
            other.channel.subscribe(place, heard.append, lambda: None, lambda count: None)
            await one.value()
            await one.one(put("b"))
            await until(lambda: heard == [["b"]])
            await until(lambda: not one.has_cached())  # it was subscribed at the old primary
            await until(lambda: one.channel.up)
            other.channel.publish(place, ["a"])
            await until(lambda: one.counted("received") == 1)


async def test_a_hung_network_is_detected_and_blocks_no_write(redis_url: str) -> None:
    async with proxied(redis_url) as (proxy, way), replicas(way, redis_url) as [one, other]:
        for replica in (one, other):
            await replica.value()
        proxy.hang()
        loop = asyncio.get_running_loop()
        began = loop.time()
        await one.one(put("a", {"n": 1}))
        assert 0.05 < loop.time() - began < 0.3  # the first write waits briefly
        began = loop.time()
        for number in range(10):
            await one.one(put(f"k{number}"))
        assert loop.time() - began < 0.3  # the others do not wait
        assert other.has_cached()  # `ttl_s` limits this
        assert await until(lambda: not one.channel.up) < 4
        await one.value()
        proxy.forward()
        await until(lambda: one.channel.up and not other.has_cached())
        assert not one.has_cached()  # it may have missed invalidations
        assert await other.value() == n(1)


async def test_a_channel_opens_and_closes_without_a_server() -> None:
    async with asyncio.timeout(SOON_S):
        registry = CollectorRegistry()
        channel = Channel(connection(f"redis://{HOST}:{free_port()}/0"), store="bus", metrics=PolicyMetrics(registry))
        cache = Cache(
            Scripted(), records_max=9, bytes_max=2**20, ttl_s=9, absent_ttl_s=0, channel=channel, metrics=None
        )
        await asyncio.sleep(0.1)
        await cache.apply([put("a", {"n": 1})])
        [found] = await cache.apply([Get("a")])
        assert isinstance(found, Record)
        assert registry.get_sample_value("tableside_cache_channel_up", {"store": "bus"}) == 0
        assert registry.get_sample_value("tableside_cache_channel_losses_total", {"store": "bus"}) is None
        await cache.close()
        await channel.close()


async def test_a_missing_permission_to_publish_is_logged_once(
    redis_url: str, tool: Any, caplog: pytest.LogCaptureFixture
) -> None:
    await tool.execute_command(
        "ACL", "SETUSER", "listener", "on", ">secret", "resetchannels", "&tableside:*", "+subscribe", "+ping", "+role"
    )
    parts = urlsplit(redis_url)
    caplog.set_level(logging.WARNING)
    try:
        async with replicas(redis_url) as [other]:
            await other.value()
            way = f"redis://listener:secret@{parts.hostname}:{parts.port}/0"
            channel = Channel(connection(way), store="bus")
            member = channel.subscribe(other.cache.spec.name_in_store, lambda keys: None, lambda: None, lambda _: None)
            await until(lambda: channel.up)
            member.publish(["a"])
            await until(lambda: not channel.up)
            await asyncio.sleep(0.3)
            assert caplog.text.count("cannot publish writes") == 1
            assert "secret" not in caplog.text
            await tool.execute_command("ACL", "SETUSER", "listener", "+publish")
            await until(lambda: not other.has_cached())
            await channel.close()
    finally:
        await tool.execute_command("ACL", "DELUSER", "listener")


async def test_an_unknown_message_invalidates_everything(pair: list[Replica], tool: Any) -> None:
    for replica in pair:
        await replica.value()
    for raw in (b"", b"\xff" * 20, msgspec.msgpack.encode({"keys": ["a"]})):
        pair[0].cache._entries.put([("a", Record(b"{}", "e"))], math.inf)
        await tool.publish("tableside:writes:0", raw)
        await until(lambda: not any(replica.has_cached() for replica in pair))
    assert pair[0].channel.up


async def test_databases_of_one_server_are_separate_channels(redis_url: str) -> None:
    async with replicas(redis_url, redis_url.removesuffix("0") + "1") as [one, other]:
        await other.value()
        await one.one(put("a", {"n": 1}))
        await asyncio.sleep(0.05)
        assert other.has_cached()


async def test_a_node_of_a_cluster_is_a_channel_too(redis_cluster_urls: list[str]) -> None:
    async with replicas(redis_cluster_urls[0], redis_cluster_urls[1], cluster=True) as [one, other]:
        await other.value()
        await one.one(put("a", {"n": 1}))
        await until(lambda: not other.has_cached())


# Messages


def test_pending_invalidations_are_limited_and_merged() -> None:
    unsaid, later = PendingInvalidations(), PendingInvalidations()
    unsaid.add("t", list(range(KEYS_MAX)))
    later.add("t", [KEYS_MAX])
    later.add("u", ["x"])
    assert unsaid.tables["t"] == set(range(KEYS_MAX))
    later.merge(unsaid)
    assert later.tables == {"t": None, "u": {"x"}}
    later.add("t", ["y"])
    assert later.tables["t"] is None
