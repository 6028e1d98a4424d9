"""The bulkhead limits concurrent calls, admits waiting calls in order, and rejects them at their deadline."""

import asyncio

from prometheus_client import CollectorRegistry

from contract import PolicyContract, Time, put
from support.scripted import Scripted
from support.virtual_time import in_virtual_time, now
from tableside.core.budget import Budget
from tableside.core.errors import Overloaded
from tableside.core.operations import Get, Written
from tableside.core.store import Policy, Scan, Store
from tableside.policies.bulkhead import Bulkhead
from tableside.policies.metrics import PolicyMetrics


class TestBulkheadOfOne(PolicyContract):
    def around(self, inner: Store, time: Time) -> Policy:
        return Bulkhead(inner, 1)


def slow(takes_s: float = 1.0) -> Scripted:
    store = Scripted()
    store.takes_s = lambda operations: takes_s
    return store


@in_virtual_time
async def test_a_slow_store_has_a_limited_number_of_calls_in_flight() -> None:
    store = slow()
    policy = Bulkhead(store, 3)
    started = now()
    outcomes = await asyncio.gather(*(policy.apply([put(f"{index}")], Budget(started + 60)) for index in range(10)))
    assert {type(outcome) for [outcome] in outcomes} == {Written}
    assert (store.under_way_max, now()) == (3, started + 4)
    assert [operation.key for [operation] in store.calls] == [f"{index}" for index in range(10)], "in order of arrival"


@in_virtual_time
async def test_a_call_that_waits_until_its_deadline_is_not_applied() -> None:
    store = slow(60)
    registry = CollectorRegistry()
    policy = Bulkhead(store, 1, metrics=PolicyMetrics(registry))
    first = asyncio.create_task(policy.apply([put("a")]))
    await asyncio.sleep(0)
    started = now()
    outcomes = await policy.apply([put("b"), Get("c")], budget=Budget(started + 2))
    assert now() == started + 2
    for outcome in outcomes:
        assert isinstance(outcome, Overloaded)
        assert (outcome.applied, outcome.retriable) == ("no", True)
        assert "concurrency_max" in outcome.detail
    assert len(store.calls) == 1
    assert isinstance((await first)[0], Written)
    refused = {"table": "t", "outcome": "refused"}
    assert registry.get_sample_value("tableside_bulkhead_calls_total", refused) == 1


@in_virtual_time
async def test_a_cancelled_call_leaves_the_queue_or_frees_its_slot() -> None:
    store = slow(5)
    policy = Bulkhead(store, 1)
    calls = [asyncio.create_task(policy.apply([put(f"{index}")])) for index in range(3)]
    await asyncio.sleep(1)
    calls[1].cancel()
    calls[0].cancel()
    started = now()
    assert isinstance((await calls[2])[0], Written)
    assert now() == started + 5
    assert [operation.key for [operation] in store.calls] == ["0", "2"]


@in_virtual_time
async def test_scans_are_calls_too() -> None:
    store = slow()
    registry = CollectorRegistry()
    policy = Bulkhead(store, 1, metrics=PolicyMetrics(registry))
    started = now()
    await asyncio.gather(policy.scan(Scan(1)), policy.apply([Get("a")]), policy.scan(Scan(1)), policy.splits(1))
    assert store.under_way_max == 1
    assert now() == started + 3
    waited = {"table": "t", "outcome": "waited"}
    assert registry.get_sample_value("tableside_bulkhead_calls_total", waited) == 3
