"""Replicas share one rate limit over Redis. If Redis fails, each uses a local limit until Redis recovers."""

import asyncio
import itertools
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from redis.asyncio import Redis
from redis.asyncio.connection import parse_url

from contract import PolicyContract, Time, put
from servers.proxy import FaultProxy
from servers.redis import redis
from support.scripted import Scripted
from support.virtual_time import now
from tableside.core.budget import Budget
from tableside.core.errors import Throttled
from tableside.core.operations import Get, Operation
from tableside.core.store import Policy, Store, TableSpec
from tableside.policies.metrics import PolicyMetrics
from tableside.policies.rate_limit import Rate, RateLimit
from tableside.policies.rate_limit.shared import (
    CONNECT_TIMEOUT_S,
    PROBE_INTERVAL_S,
    RESPONSE_TIMEOUT_S,
    SharedCredits,
)
from tableside.stores.memory import MemoryStore
from tableside.stores.redis.settings import RedisSettings

pytestmark = pytest.mark.server


@pytest.fixture
def table() -> str:
    """A table name that no other test uses."""
    return uuid.uuid4().hex


@asynccontextmanager
async def shared(url: str, **told: Any) -> AsyncIterator[SharedCredits]:
    credit = SharedCredits.open(dict(parse_url(url)), **told)
    try:
        yield credit
    finally:
        await credit.close()


def store(table: str) -> Scripted:
    return Scripted(MemoryStore(TableSpec(table)))


@asynccontextmanager
async def replicas(url: str, table: str, count: int, **told: Any) -> AsyncIterator[list[tuple[RateLimit, Scripted]]]:
    """Open the limit of one table in this many replicas, each with its own connections and its own store."""
    async with AsyncExitStack() as opened:
        stores = [store(table) for _ in range(count)]
        limits = [await opened.enter_async_context(shared(url)) for _ in range(count)]
        yield [
            (RateLimit(one, **{"read": None, "write": None, **told}, shared=limit), one)
            for one, limit in zip(stores, limits, strict=True)
        ]


async def run_callers(policy: Policy, seconds: float, callers: int, operation: Operation | None = None) -> None:
    """Run this many callers. Each repeats an operation, by default a get, without a pause."""
    until = now() + seconds

    async def caller() -> None:
        while now() < until:
            await policy.apply([operation or Get("a")], Budget(until))
            await asyncio.sleep(0)

    await asyncio.gather(*(caller() for _ in range(callers)))


def passed(stores: Sequence[Scripted]) -> list[tuple[float, int]]:
    """Return the time and the number of operations of each call to any of the stores, in order."""
    return sorted((at, len(call)) for one in stores for at, call in zip(one.called_at, one.calls, strict=True))


def most_above(passed: list[tuple[float, int]], per_s: float) -> float:
    """Return the largest excess over the rate, in operations, in any interval."""
    after = list(itertools.accumulate(count for _, count in passed))
    most = lowest = 0.0
    before = 0
    for (at, _), total in zip(passed, after, strict=True):
        lowest = min(lowest, before - per_s * (at - passed[0][0]))
        most = max(most, total - per_s * (at - passed[0][0]) - lowest)
        before = total
    return most


class TestSharedRateLimit(PolicyContract):
    @pytest.fixture(autouse=True)
    async def credit(self, redis_url: str) -> AsyncIterator[None]:
        async with shared(redis_url) as self.shared:
            yield

    def around(self, inner: Store, time: Time) -> Policy:
        return RateLimit(inner, read=Rate(1e7), write=Rate(1e7, 1e7), shared=self.shared)


async def test_two_replicas_together_keep_the_rate(redis_url: str, table: str) -> None:
    """Samza: each task had a fixed part of the rate, used or not (W29)."""
    rate = Rate(200)
    async with replicas(redis_url, table, 2, read=rate) as ((one, one_store), (other, other_store)):
        await asyncio.gather(run_callers(one, 3, 10), run_callers(other, 3, 10))
    both = passed([one_store, other_store])
    assert most_above(both, 200) <= 200 + 20
    assert sum(count for _, count in both) >= 0.6 * 200 * 3, "nor is it much less"
    assert min(len(one_store.calls), len(other_store.calls)) >= 30, "neither starves"


async def test_a_replica_can_use_credits_that_others_leave(redis_url: str, table: str) -> None:
    async with replicas(redis_url, table, 2, read=Rate(200)) as ((busy, busy_store), (idle, idle_store)):
        await asyncio.gather(run_callers(busy, 2.5, 10), idle.apply([Get("a")], Budget(now() + 1)))
    assert len(idle_store.calls) == 1
    assert len(busy_store.calls) >= 0.6 * 200 * 2.5


async def test_a_burst_is_for_all_together(redis_url: str, table: str) -> None:
    async with replicas(redis_url, table, 3, write=Rate(1, 50)) as three:
        writes = [put(f"{index}") for index in range(40)]
        outcomes = await asyncio.gather(*(policy.apply(writes, Budget(now() + 2)) for policy, _ in three))
    answered = [outcome for each in outcomes for outcome in each]
    refused = [outcome for outcome in answered if isinstance(outcome, Throttled)]
    assert 50 <= len(answered) - len(refused) <= 53
    assert all(0 < (error.retry_after_s or 0) <= 100 for error in refused)


async def test_reads_and_writes_have_separate_credits(redis_url: str, table: str) -> None:
    async with replicas(redis_url, table, 1, read=Rate(100), write=Rate(1)) as [(policy, _)]:
        await policy.apply([put("a")], Budget(now() + 5))
        waiting = [asyncio.create_task(policy.apply([put("b")], Budget(now() + 60))) for _ in range(5)]
        await asyncio.sleep(0.05)
        started = now()
        assert await policy.apply([Get(f"{index}") for index in range(50)], Budget(started + 5)) == [None] * 50
        assert now() - started < 0.5
        for write in waiting:
            write.cancel()
    async with replicas(redis_url, f"{table}-equal", 1, read=Rate(0.01), write=Rate(0.01)) as [(policy, _)]:
        await policy.apply([put("a")], Budget(now() + 5))
        assert await policy.apply([Get("absent")], Budget(now() + 5)) == [None]
        started = now()
        [refused] = await policy.apply([put("b")], Budget(started + 60))
        assert isinstance(refused, Throttled)
        assert now() - started < 30, "it is rejected without a wait"


@pytest.mark.parametrize("fault", ["cut", "hang"])
async def test_without_redis_a_replica_uses_a_local_limit_until_redis_recovers(
    redis_url: str, table: str, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    where = parse_url(redis_url)
    registry = CollectorRegistry()
    rate = Rate(100)
    async with FaultProxy(where["host"], where["port"]) as proxy:
        url = f"redis://{where['host']}:{proxy.port}/0"
        async with replicas(url, table, 1, read=rate, share=0.5, metrics=PolicyMetrics(registry)) as [
            (policy, one_store)
        ]:
            await run_callers(policy, 0.5, 5)
            assert fallbacks(registry, table) == 0
            getattr(proxy, fault)()
            await run_callers(policy, 1.5, 5)
            alone = passed([one_store])
            away = fallbacks(registry, table)
            assert away > 0
            proxy.forward()
            await asyncio.sleep(PROBE_INTERVAL_S + CONNECT_TIMEOUT_S + RESPONSE_TIMEOUT_S)
            back = fallbacks(registry, table)
            await run_callers(policy, 1.5, 5)
            assert fallbacks(registry, table) == back, "Redis is used again"
    told = [record.getMessage() for record in caplog.records if "shared limiter" in record.getMessage()]
    assert ["unreachable" in told[0], "again" in told[1]] == [True, True], (
        "told once when it goes, and once when it is back"
    )
    assert len(told) == 2
    since = [(at, count) for at, count in alone if at > alone[-1][0] - 1]
    assert len(since) >= 20, "a limiter that is away does not stop a table"
    assert most_above(since, 50) <= 50 + 10, "alone it has its share of the rate and of the burst"


def fallbacks(registry: CollectorRegistry, table: str) -> float:
    name = "tableside_rate_limit_fallbacks_total"
    return registry.get_sample_value(name, {"table": table, "direction": "read"}) or 0.0


async def test_shared_limits_work_on_a_cluster(redis_cluster_urls: list[str], table: str) -> None:
    [url, *_] = redis_cluster_urls
    registry = CollectorRegistry()
    inner = store(table)
    async with shared(url, cluster=True) as credit:
        policy = RateLimit(inner, read=Rate(100), write=Rate(5), shared=credit, metrics=PolicyMetrics(registry))
        await asyncio.gather(run_callers(policy, 1.5, 5), run_callers(policy, 1.5, 5, put("a")))
    gets = [(at, 1) for at, [operation] in zip(inner.called_at, inner.calls, strict=True) if type(operation) is Get]
    assert 100 <= len(gets) <= 100 + 100 * 1.6
    assert 5 <= len(inner.calls) - len(gets) <= 5 + 8
    assert fallbacks(registry, table) == 0


async def test_user_and_password_are_used_and_never_shown(
    tmp_path: Path, table: str, caplog: pytest.LogCaptureFixture
) -> None:
    with redis(tmp_path) as url:
        async with Redis.from_url(url) as tool:
            await tool.config_set("requirepass", "geheim")
        for password, away in (("geheim", 0), ("verkehrt", 1)):
            registry = CollectorRegistry()
            settings = RedisSettings.model_validate({"url": url, "username": "default", "password": password})
            credit = SharedCredits.open(settings.connection())
            policy = RateLimit(store(table), read=Rate(10), write=None, shared=credit, metrics=PolicyMetrics(registry))
            assert await policy.apply([Get("a")], Budget(now() + 5)) == [None]
            assert fallbacks(registry, table) == away
            assert password not in repr(credit)
            await credit.close()
    assert "is unreachable" in caplog.text
    assert "geheim" not in caplog.text
    assert "verkehrt" not in caplog.text
