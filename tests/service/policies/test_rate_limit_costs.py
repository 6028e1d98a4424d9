"""The cost of operations: by kind and size, before and after the call, and no cost that could never be paid."""

import asyncio

import pytest

from contract import PolicyContract, Time, put, update
from support.scripted import Divided, Scripted
from support.spans import Spans
from support.virtual_time import in_virtual_time, now
from tableside.core.budget import NO_DEADLINE, Budget
from tableside.core.errors import Throttled
from tableside.core.operations import Delete, Get, Operation, Put, Record, Update, Written
from tableside.core.store import Policy, Store, TableSpec
from tableside.policies.rate_limit import Cost, Rate, RateLimit
from tableside.stores.memory import MemoryStore


class TestRateLimitWithCosts(PolicyContract):
    def around(self, inner: Store, time: Time) -> Policy:
        cost = Cost(get=0.5, put=2, update=1.5, delete=0, kib=0.25)
        return RateLimit(inner, read=Rate(1e5, 50), write=Rate(1e5, 50), cost=cost)


def value(size_bytes: int) -> bytes:
    """Return a value of this size."""
    text = b'{"s":"' + b"x" * (size_bytes - 8) + b'"}'
    assert len(text) == size_bytes
    return text


def sized(key: str, size_bytes: int) -> Put:
    return Put(key, value(size_bytes))


async def passed_at(policy: RateLimit, *operations: Operation, left_s: float = 60) -> float:
    """Apply the operations in one call, and return how long it took in seconds."""
    started = now()
    outcomes = await policy.apply(operations, Budget(started + left_s))
    assert not any(isinstance(outcome, Throttled) for outcome in outcomes)
    return now() - started


async def empty(policy: RateLimit, *, read: float = 0, write: float = 0) -> None:
    """Remove this many credits from the buckets."""
    for way, gate in policy._gates.items():
        if cost := read if way == "read" else write:
            assert gate.credits_of(NO_DEADLINE).try_take(cost)


def test_each_kind_has_a_cost_and_sizes_are_rounded_up_to_kib() -> None:
    """Samza: one cost function for all kinds failed on updates (W33)."""
    cost = Cost(get=1, put=2, update=3, delete=4, kib=10)
    assert cost.of(Get("a")) == 1
    assert cost.of(sized("a", 1024)) == 12
    assert cost.of(sized("a", 1025)) == 22
    assert cost.of(update("a", {"$set": {"n": "x" * 1024}})) == 23
    default = update("a", {"$set": {"n": 1}}, {"s": "x" * 1100})
    assert isinstance(default, Update)
    assert cost.of(default) == 23
    assert cost.of(Delete("a")) == 4
    assert cost.found_cost([Record(value(1025), "1"), None, Throttled("x"), Written("1"), Record(value(10), "1")]) == 30


@in_virtual_time
async def test_a_free_operation_never_waits_or_fails() -> None:
    """Samza: an operation that cost nothing was an error (W34)."""
    store = Scripted()
    policy = RateLimit(store, read=Rate(1, 1), write=Rate(1, 1), cost=Cost(get=0, delete=0))
    await empty(policy, read=1, write=1)
    waiting = asyncio.create_task(policy.apply([put("w")], Budget(now() + 60)))
    await asyncio.sleep(0)
    assert await passed_at(policy, Delete("a")) == 0
    assert await passed_at(policy, *[Get(f"{index}") for index in range(1000)]) == 0
    operations: list[Operation] = [put("a"), Delete("b"), put("c"), Delete("d"), Get("e")]
    outcomes = await Divided(policy).apply(operations, Budget(now() + 0.1))
    assert [type(outcome) for outcome in outcomes] == [Throttled, Written, Throttled, Written, type(None)]
    waiting.cancel()


@in_virtual_time
async def test_an_operation_beyond_the_burst_passes_when_the_bucket_is_full_and_the_rest_is_debt() -> None:
    """Samza: an operation that cost more than the available credits always passed immediately (W30)."""
    store = Scripted()
    policy = RateLimit(store, read=None, write=Rate(10, 5), cost=Cost(kib=10))
    await empty(policy, write=5)
    assert await passed_at(policy, sized("a", 3000)) == pytest.approx(0.5), "31 credits, and the bucket has at most 5"
    [refused] = await policy.apply([put("b")], Budget(now() + 3))
    assert isinstance(refused, Throttled)
    assert refused.retry_after_s == pytest.approx(3.1), "26 are owed, and a bucket has to be full for 11"
    assert await passed_at(policy, put("b"), left_s=3.101) == pytest.approx(3.1)


@in_virtual_time
async def test_an_operation_that_costs_more_than_its_deadline_allows_eventually_passes() -> None:
    policy = RateLimit(Scripted(), read=None, write=Rate(1, 1), cost=Cost(kib=1))
    assert await passed_at(policy, sized("a", 500_000), left_s=10) == 0
    [refused] = await policy.apply([put("b")], Budget(now() + 10))
    assert isinstance(refused, Throttled)
    assert refused.retry_after_s is not None
    await asyncio.sleep(refused.retry_after_s)
    assert await passed_at(policy, put("b"), left_s=10) == 0, "the announced wait was correct"


@in_virtual_time
async def test_the_next_call_pays_for_the_size_of_found_records() -> None:
    memory = MemoryStore(TableSpec("t"))
    await memory.apply([sized("a", 10_000), sized("b", 10)])
    policy = RateLimit(Scripted(memory), read=Rate(10, 5), write=Rate(10, 5), cost=Cost(get=1, kib=1))
    assert await passed_at(policy, Get("a")) == 0, "11 credits, 1 of them paid before"
    assert await passed_at(policy, sized("w", 10)) == 0, "writes are not concerned"
    assert await passed_at(policy, Get("absent")) == pytest.approx(0.7), "6 are owed, and it needs 1"
    assert await passed_at(policy, Get("absent")) == pytest.approx(0.1), "nothing found is nothing paid"


@in_virtual_time
async def test_gets_without_a_fixed_cost_wait_while_credits_are_owed() -> None:
    memory = MemoryStore(TableSpec("t"))
    await memory.apply([sized("a", 10_240)])
    policy = RateLimit(Scripted(memory), read=Rate(10, 5), write=None, cost=Cost(get=0, kib=1))
    assert await passed_at(policy, Get("a")) == 0
    assert await passed_at(policy, Get("a")) == pytest.approx(0.5)
    assert await passed_at(policy, Get("a")) == pytest.approx(1.0)
    [refused] = await policy.apply([Get("b")], Budget(now() + 0.5))
    assert isinstance(refused, Throttled)


@in_virtual_time
async def test_a_large_record_delays_its_table_by_at_most_ten_seconds() -> None:
    memory = MemoryStore(TableSpec("t", value_bytes_max=2**24))
    await memory.apply([sized("a", 10_000_000)])
    policy = RateLimit(Scripted(memory), read=Rate(2, 5), write=None, cost=Cost(kib=1))
    await passed_at(policy, Get("a"))
    assert await passed_at(policy, Get("b")) == pytest.approx(10.5)


@in_virtual_time
async def test_only_a_wait_creates_a_span() -> None:
    spans = Spans()
    policy = RateLimit(Scripted(), read=Rate(10, 2), write=None, traces=spans.traces)
    assert await spans.of(policy, [Get("a"), Get("b")]) == []
    assert await spans.of(policy, [Get("a")]) == ["rate limit wait"]
    assert await spans.of(policy, [Get("a"), Get("b")]) == ["rate limit wait"] * 2
    assert await spans.of(policy, [Get("a")], left_s=0.01) == [], "refused at once"
