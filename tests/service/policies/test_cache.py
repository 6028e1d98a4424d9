"""The cache passes the shared suite around the memory store, and never returns a value older than a known write."""

import asyncio
import random
from collections.abc import Sequence
from typing import Any, ClassVar

import pytest
from prometheus_client import CollectorRegistry

from contract import PolicyContract, Time, put, text
from support.cache_site import Site
from support.virtual_time import in_virtual_time
from tableside.core.budget import NO_DEADLINE, Budget
from tableside.core.errors import StoreUnavailable
from tableside.core.operations import Delete, Get, Operation, Outcome, Record
from tableside.core.store import Policy, Store
from tableside.policies.cache import Cache
from tableside.policies.metrics import PolicyMetrics

ROOMY: dict[str, Any] = {"records_max": 100_000, "bytes_max": 2**30, "ttl_s": 3600.0, "absent_ttl_s": 600.0}


class YieldingStore(Policy):
    """A store that yields to other tasks a random number of times before and after each call."""

    def __init__(self, inner: Store, chance: random.Random) -> None:
        super().__init__(inner)
        self._chance = chance

    async def apply(self, operations: Sequence[Operation], budget: Budget = NO_DEADLINE) -> Sequence[Outcome]:
        await self.turns()
        outcomes = await self._inner.apply(operations, budget)
        await self.turns()
        return outcomes

    async def turns(self) -> None:
        for _ in range(int(self._chance.random() * 4)):
            await asyncio.sleep(0)


class TestRoomy(PolicyContract):
    configuration: ClassVar[dict[str, Any]] = ROOMY

    def around(self, inner: Store, time: Time) -> Policy:
        return Cache(inner, clock=time.now_ms, monotonic=lambda: time.now_ms() / 1000, **self.configuration)


class TestNothingKept(TestRoomy):
    configuration: ClassVar[dict[str, Any]] = {**ROOMY, "ttl_s": 0.0, "absent_ttl_s": 0.0}


class TestFewBytesSlowly(TestRoomy):
    configuration: ClassVar[dict[str, Any]] = {**ROOMY, "bytes_max": 2000}

    def around(self, inner: Store, time: Time) -> Policy:
        return super().around(YieldingStore(inner, random.Random(7)), time)


def n(number: int) -> bytes:
    return text(n=number)


# Which records are cached, and for how long


@in_virtual_time
async def test_a_record_is_read_once_and_then_returned_with_its_age() -> None:
    site = await Site.made()
    first = await site.one(Get("a"))
    await asyncio.sleep(2.5)
    second = await site.one(Get("a"))
    assert isinstance(first, Record)
    assert isinstance(second, Record)
    assert (first.value, first.etag, first.age_s) == (second.value, second.etag, None)
    assert second.age_s == pytest.approx(2.5)
    assert site.asked == [["a"]]


@in_virtual_time
async def test_a_frequently_read_record_still_expires_from_the_cache() -> None:
    site = await Site.made(ttl_s=10.0)
    for _ in range(99):
        await site.value()
        await asyncio.sleep(0.1)
    assert site.asked == [["a"]]
    await site.elsewhere(put("a", {"n": 1}))
    assert await site.value() == n(0)
    await asyncio.sleep(0.2)
    assert await site.value() == n(1)


@in_virtual_time
async def test_the_age_counts_from_the_start_of_the_read() -> None:
    site = await Site.made(ttl_s=10.0)
    site.takes(4.0)
    await site.value()
    outcome = await site.one(Get("a"))
    assert isinstance(outcome, Record)
    assert outcome.age_s == pytest.approx(4.0)
    await asyncio.sleep(5.9)
    await site.value()
    assert len(site.asked) == 1
    await asyncio.sleep(0.2)
    await site.value()
    assert len(site.asked) == 2


@in_virtual_time
async def test_absences_are_cached_for_a_separate_time() -> None:
    site = await Site.made(ttl_s=10.0, absent_ttl_s=2.0)
    assert await site.value("b") is None
    await site.elsewhere(put("b", {"n": 5}))
    await asyncio.sleep(1.9)
    assert await site.value("b") is None
    assert site.asked == [["b"]]
    await asyncio.sleep(0.2)
    assert await site.value("b") == n(5)


# Limits


@in_virtual_time
async def test_the_least_recently_used_records_are_evicted() -> None:
    site = Site(records_max=3)
    await site.memory.apply([put(key) for key in "abcde"])
    for key in ("a", "b", "c", "a", "d", "e"):
        await site.value(key)
    assert len(site.asked) == 5
    await site.cache.apply([Get(key) for key in "ade"])
    assert len(site.asked) == 5
    await site.cache.apply([Get(key) for key in "bc"])
    assert site.asked[5:] == [["b", "c"]]


@in_virtual_time
async def test_a_record_that_is_too_large_is_not_cached_and_removes_the_previous_one() -> None:
    site = await Site.made(bytes_max=2000)
    assert await site.value() == n(0)
    await site.elsewhere(put("a", {"long": "x" * 2000}))
    for _ in range(2):
        assert len(await site.value(max_age_s=0) or b"") > 2000
        assert len(await site.value() or b"") > 2000
    assert len(site.asked) == 5


# Errors


@in_virtual_time
async def test_an_error_is_not_cached() -> None:
    site = await Site.made()
    site.store.fault = lambda operation, call: StoreUnavailable("x") if call == 1 else None
    assert isinstance(await site.one(Get("a")), StoreUnavailable)
    assert await site.value() == n(0)


@in_virtual_time
async def test_a_cancelled_read_is_not_cached() -> None:
    site = await Site.made()
    site.takes(10.0)
    reading = asyncio.create_task(site.value())
    await asyncio.sleep(0.1)
    reading.cancel()
    await asyncio.wait([reading])
    assert (site.store.cancelled, site.cache._reading) == (1, {})
    assert await site.value() == n(0)


# Writes


@in_virtual_time
async def test_a_read_during_a_write_is_not_cached() -> None:
    site = await Site.made()
    site.takes(2.0, 0.1, 0.1)  # the write takes effect at its end
    write = asyncio.create_task(site.one(put("a", {"n": 1})))
    await asyncio.sleep(0.1)
    assert [await site.value(), await site.value()] == [n(0), n(0)]
    assert len(site.asked) == 3
    await write
    assert [await site.value(), await site.value()] == [n(1), n(1)]
    assert len(site.asked) == 4


# The maximum age that a get accepts


@in_virtual_time
async def test_a_get_that_bypasses_the_cache_refreshes_it() -> None:
    site = await Site.made(absent_ttl_s=0.0)
    await site.value()
    await site.elsewhere(put("a", {"n": 1}))
    outcome = await site.one(Get("a", 0))
    assert isinstance(outcome, Record)
    assert (outcome.value, outcome.age_s) == (n(1), None)
    assert await site.value() == n(1)
    assert len(site.asked) == 2
    await site.elsewhere(Delete("a"))
    assert await site.value(max_age_s=0) is None
    assert await site.value() is None  # although absences are not cached


# Metrics


@in_virtual_time
async def test_gets_and_ages_are_counted_and_the_content_is_shown() -> None:
    registry = CollectorRegistry()
    site = await Site.made(metrics=PolicyMetrics(registry), records_max=3)
    await site.memory.apply([put(key) for key in "bcdef"])

    def shown(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"tableside_cache_{name}", {"table": "t", **labels})

    def gets() -> list[float | None]:
        return [shown("gets_total", outcome=outcome) for outcome in ("hit", "miss", "bypassed")]

    assert (gets(), shown("evictions_total")) == ([0, 0, 0], 0)
    await site.cache.apply([Get(key) for key in "abc"])
    await asyncio.sleep(1.5)
    await site.cache.apply([Get("a"), Get("b", 0), Get("x", 5)])
    assert gets() == [1, 4, 1]
    assert (shown("age_seconds_count"), shown("age_seconds_sum")) == (1, 1.5)
    site.takes(1.0)
    await site.cache.apply([Get("d"), Get("e")])
    assert gets() == [1, 6, 1]
    assert (shown("records"), shown("evictions_total")) == (3, 3)
    assert (shown("bytes") or 0) > 3 * 200
    await site.cache.apply([Delete(key) for key in "abcdex"])
    assert (shown("records"), shown("bytes"), shown("evictions_total")) == (0, 0, 3)


@in_virtual_time
async def test_the_records_of_a_cache_take_at_most_its_bytes() -> None:
    registry = CollectorRegistry()
    site = await Site.made(metrics=PolicyMetrics(registry), bytes_max=6000)
    sizes = [10, 100, 3000, 5900] * 10
    await site.memory.apply([put(f"{index}", {"x": "x" * size}) for index, size in enumerate(sizes)])
    for index in range(len(sizes)):
        await site.cache.apply([Get(f"{index}"), Get(f"absent {index}")])
        assert 0 < (registry.get_sample_value("tableside_cache_bytes", {"table": "t"}) or 0) <= 6000
    assert (registry.get_sample_value("tableside_cache_evictions_total", {"table": "t"}) or 0) > 20
