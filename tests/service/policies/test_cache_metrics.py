"""The metrics of a cache after a known sequence of operations."""

import asyncio

import pytest
from prometheus_client import CollectorRegistry

from contract import put
from support.cache_site import Site
from support.virtual_time import in_virtual_time
from tableside.core.operations import Delete, Get
from tableside.policies.metrics import PolicyMetrics


class MetricReader:
    """The metrics of table `t`."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.metrics = PolicyMetrics(self._registry)

    def __call__(self, name: str, **labels: str) -> float | None:
        return self._registry.get_sample_value(f"tableside_cache_{name}", {"table": "t", **labels})

    def gets(self) -> list[float | None]:
        return [self("gets_total", outcome=outcome) for outcome in ("hit", "miss", "coalesced", "bypassed")]

    def ages(self) -> list[float | None]:
        return [self("age_seconds_count"), self("age_seconds_sum")]

    def content(self) -> list[float | None]:
        return [self("records"), self("bytes"), self("evictions_total")]


@in_virtual_time
async def test_gets_are_counted_by_source_and_the_content_is_shown() -> None:
    shown = MetricReader()
    site = await Site.made(metrics=shown.metrics, records_max=3)
    await site.memory.apply([put(key) for key in "bcdef"])
    assert shown.gets() == [0, 0, 0, 0]
    assert shown("evictions_total") == 0
    await site.cache.apply([Get(key) for key in "abc"])
    await site.cache.apply([Get("a"), Get("b", 0), Get("x", 5)])
    assert shown.gets() == [1, 4, 0, 1]
    assert (shown("records"), shown("evictions_total")) == (3, 1)
    site.takes(1.0)
    await asyncio.gather(*(site.cache.apply([Get("d"), Get("e")]) for _ in range(5)))
    assert shown.gets() == [1, 6, 8, 1]
    assert (shown("records"), shown("evictions_total")) == (3, 3)
    assert shown("bytes") == site.cache._entries.size_bytes > 3 * 200
    await site.cache.apply([Delete(key) for key in "abcdex"])
    assert shown.gets() == [1, 6, 8, 1]
    assert shown.content() == [0, 0, 3]


@in_virtual_time
async def test_the_highest_age_is_observed_once_per_call() -> None:
    shown = MetricReader()
    site = await Site.made(metrics=shown.metrics, absent_ttl_s=10.0)
    await site.value("absent")
    await asyncio.sleep(3.0)
    await site.value("a")
    await asyncio.sleep(1.5)
    assert shown("age_seconds_count") == 0
    await site.value("a")
    assert shown.ages() == pytest.approx([1, 1.5])
    await site.cache.apply([Get("a"), Get("absent"), Get("new")])
    assert shown.ages() == pytest.approx([2, 6.0])
    assert [shown("age_seconds_bucket", le=bound) for bound in ("1.0", "2.0", "5.0")] == [0, 1, 2]
    await site.cache.apply([Get("a", 0), Get("newer")])
    assert shown("age_seconds_count") == 2
