"""Each caller has a separate limit, which counts the operations of its requests to all tables."""

import asyncio
from collections.abc import Sequence

import pytest
from prometheus_client import CollectorRegistry

from contract import put
from support.scripted import Scripted
from support.virtual_time import in_virtual_time, now
from tableside.core.budget import Budget
from tableside.core.errors import Throttled
from tableside.core.operations import Get, Operation, Outcome
from tableside.policies.metrics import PolicyMetrics
from tableside.policies.rate_limit import CallerRate, Rate
from tableside.policies.rate_limit.policy import Buckets


def limit(per_s: float, metrics: PolicyMetrics | None = None) -> CallerRate:
    rate = CallerRate(metrics=metrics)
    rate.change(per_s)
    return rate


async def apply_as_caller(
    rate: CallerRate, caller: str, operations: Sequence[Operation], left_s: float = 10
) -> Sequence[Outcome]:
    gate = rate.gate_for(caller)
    assert gate is not None
    return await gate.apply(Scripted(), operations, Budget(now() + left_s, caller=caller))


@in_virtual_time
async def test_a_flood_of_one_caller_does_not_delay_others() -> None:
    rate = limit(10)
    flood = asyncio.create_task(apply_as_caller(rate, "loud", [Get(f"{index}") for index in range(50)]))
    await asyncio.sleep(0)
    started = now()
    assert await apply_as_caller(rate, "quiet", [Get("a")]) == [None]
    assert now() == started
    assert await flood == [None] * 50
    assert now() - started == pytest.approx(4)
    assert rate.gate_for("") is None, "callers without a name have no limit"


@in_virtual_time
async def test_a_rejection_names_the_limit_and_the_delay() -> None:
    rate = limit(0.5)
    await apply_as_caller(rate, "a", [Get("a")])
    [refused] = await apply_as_caller(rate, "a", [Get("a")], 1)
    assert isinstance(refused, Throttled)
    assert "caller 'a'" in refused.detail
    assert "caller_rate_per_s" in refused.detail
    assert refused.retry_after_s == 2
    await asyncio.sleep(2)
    assert await apply_as_caller(rate, "a", [Get("a")], 0) == [None]


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
    buckets = Buckets(Rate(1, 2), 20)
    for index in range(20):
        assert buckets.of(f"{index}").take_now(2) == 2
    shared = {id(buckets.of(f"other {index}")) for index in range(200)}
    assert len(shared) == 1, "callers beyond the maximum share one bucket"
    assert buckets.of("0").take_now(1) == 0
    await asyncio.sleep(300)
    assert [buckets.of(f"late {index}").take_now(2) for index in range(20)] == [2] * 20


@in_virtual_time
async def test_refusals_and_waits_are_counted_and_never_by_caller() -> None:
    registry = CollectorRegistry()
    rate = limit(1, PolicyMetrics(registry))
    for caller in ("a", "b"):
        await apply_as_caller(rate, caller, [put(f"{index}") for index in range(4)], 1)

    def value(name: str) -> float | None:
        labels = {"table": "*", "direction": "*"}
        return registry.get_sample_value(f"tableside_caller_limit_{name}", labels)

    assert value("throttled_total") == 4
    assert value("wait_seconds_count") == 2
    assert value("wait_seconds_sum") == pytest.approx(2)
