"""Each caller has a separate limit, which counts the operations of its requests."""

import asyncio
from collections.abc import Sequence

import pytest
from prometheus_client import CollectorRegistry

from contract import PolicyContract, Time, put
from support.scripted import Divided, Scripted
from support.virtual_time import in_virtual_time, now
from tableside.core.budget import Budget
from tableside.core.errors import Throttled
from tableside.core.operations import Get, Operation, Outcome, Written
from tableside.core.store import Policy, Store
from tableside.policies.cache import Cache
from tableside.policies.metrics import PolicyMetrics
from tableside.policies.rate_limit import Rate
from tableside.policies.rate_limit.policy import Buckets, CallerLimit


class TestCallerLimit(PolicyContract):
    def around(self, inner: Store, time: Time) -> Policy:
        return CallerLimit(inner, read=Rate(1e5, 20), write=Rate(1e5, 3))


async def apply_as_caller(
    policy: Policy, caller: str, operations: Sequence[Operation], left_s: float = 10
) -> Sequence[Outcome]:
    return await policy.apply(operations, Budget(now() + left_s, caller=caller))


def kinds(outcomes: Sequence[Outcome]) -> list[type]:
    return [type(outcome) for outcome in outcomes]


@in_virtual_time
async def test_a_flood_of_one_caller_does_not_delay_others() -> None:
    policy = CallerLimit(Scripted(), read=Rate(10, 5), write=None)
    flood = asyncio.create_task(apply_as_caller(policy, "loud", [Get(f"{index}") for index in range(50)]))
    await asyncio.sleep(0)
    started = now()
    assert await apply_as_caller(policy, "quiet", [Get("a")]) == [None]
    assert await apply_as_caller(policy, "", [Get("a")]) == [None], "a caller without a name also has a bucket"
    assert now() == started
    assert await flood == [None] * 50
    assert now() - started == pytest.approx(4.5)


@in_virtual_time
async def test_reads_and_writes_of_a_caller_have_separate_limits() -> None:
    policy = Divided(CallerLimit(Scripted(), read=Rate(10, 5), write=Rate(1, 1)))
    assert kinds(await apply_as_caller(policy, "a", [put("x"), Get("y")])) == [Written, type(None)]
    assert kinds(await apply_as_caller(policy, "a", [put("x"), Get("y")], 0.1)) == [Throttled, type(None)]
    assert kinds(await apply_as_caller(policy, "a", [put("x")], 1)) == [Written]
    started = now()
    assert await apply_as_caller(policy, "a", [Get(f"{index}") for index in range(5)]) == [None] * 5
    assert now() == started, "the read of the call that was refused in part paid once"


@in_virtual_time
async def test_a_rejection_names_the_limit_and_the_delay() -> None:
    policy = CallerLimit(Scripted(), read=Rate(0.5, 1), write=None)
    await apply_as_caller(policy, "a", [Get("a")])
    [refused] = await apply_as_caller(policy, "a", [Get("a")], 1)
    assert isinstance(refused, Throttled)
    assert "caller 'a'" in refused.detail
    assert "caller_rate_per_s" in refused.detail
    assert refused.retry_after_s == 2
    await asyncio.sleep(2)
    assert await apply_as_caller(policy, "a", [Get("a")], 0) == [None]


@in_virtual_time
async def test_cached_reads_count_too() -> None:
    store = Scripted()
    cache = Cache(store, records_max=10, bytes_max=10_000, ttl_s=60, absent_ttl_s=60)
    policy = CallerLimit(cache, read=Rate(1, 3), write=None)
    for _ in range(3):
        await apply_as_caller(policy, "a", [Get("k")], 0.1)
    assert len(store.calls) == 1
    assert kinds(await apply_as_caller(policy, "a", [Get("k")], 0.1)) == [Throttled]


@in_virtual_time
async def test_the_number_of_remembered_callers_is_limited() -> None:
    buckets = Buckets(Rate(1, 5), 3)
    first, second = buckets.of("a"), buckets.of("b")
    buckets.of("c")
    assert buckets.of("a") is first
    buckets.of("d")
    assert len(buckets) == 3
    assert buckets.of("a") is first
    assert buckets.of("b") is not second, "forgotten when another came"


@in_virtual_time
async def test_a_caller_is_remembered_until_its_credits_are_restored() -> None:
    policy = CallerLimit(Scripted(), read=Rate(1, 2), write=None, callers_max=20)
    operations = [Get("a"), Get("b")]
    for index in range(20):
        await apply_as_caller(policy, f"{index}", operations)
    for index in range(200):
        await apply_as_caller(policy, f"other {index}", [Get("a")], 0.1)
    assert kinds(await apply_as_caller(policy, "0", [Get("a")], 0.1)) == [Throttled]
    await asyncio.sleep(300)
    for index in range(20):
        assert kinds(await apply_as_caller(policy, f"late {index}", operations, 0.1)) == [type(None)] * 2


@in_virtual_time
async def test_callers_beyond_the_maximum_share_one_bucket() -> None:
    policy = CallerLimit(Scripted(), read=Rate(1, 2), write=None, callers_max=1)
    await apply_as_caller(policy, "a", [Get("a"), Get("b")])
    outcomes = [await apply_as_caller(policy, name, [Get("a")], 0.1) for name in "bcd"]
    assert [kinds(each) for each in outcomes] == [[type(None)], [type(None)], [Throttled]]


@in_virtual_time
async def test_refusals_and_waits_are_counted_by_direction_and_never_by_caller() -> None:
    registry = CollectorRegistry()
    policy = CallerLimit(Scripted(), read=Rate(10, 1), write=Rate(1, 1), metrics=PolicyMetrics(registry))
    for caller in ("a", "b"):
        await apply_as_caller(policy, caller, [put(f"{index}") for index in range(4)], 0.1)
        await apply_as_caller(policy, caller, [Get("x"), Get("y")])

    def value(name: str, direction: str) -> float | None:
        return registry.get_sample_value(f"tableside_caller_limit_{name}", {"table": "t", "direction": direction})

    assert (value("throttled_total", "write"), value("throttled_total", "read")) == (6, 0)
    assert (value("wait_seconds_count", "write"), value("wait_seconds_count", "read")) == (0, 2)
    assert value("wait_seconds_sum", "read") == pytest.approx(0.2)
