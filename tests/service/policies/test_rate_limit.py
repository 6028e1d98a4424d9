"""Rate limits of a table and of each caller: in order, and hopeless calls are rejected immediately."""

import asyncio
import itertools
import random
from collections.abc import Sequence

import pytest
from prometheus_client import CollectorRegistry

from contract import PolicyContract, Time, put
from support.scripted import Scripted
from support.virtual_time import in_virtual_time, now
from tableside.core.budget import Budget
from tableside.core.errors import Throttled
from tableside.core.operations import Get, Operation, Outcome, Written
from tableside.core.store import Policy, Store
from tableside.policies.metrics import PolicyMetrics
from tableside.policies.rate_limit import CallerRate, Rate, RateLimit
from tableside.policies.rate_limit.policy import Buckets


class TestRateLimitThatDividesCalls(PolicyContract):
    def around(self, inner: Store, time: Time) -> Policy:
        return RateLimit(inner, read=Rate(1e5, 100), write=Rate(2e5, 1))


def gets(count: int, name: str = "k") -> list[Operation]:
    return [Get(f"{name}{index}") for index in range(count)]


def puts(count: int, name: str = "k") -> list[Operation]:
    return [put(f"{name}{index}") for index in range(count)]


def throttled(outcomes: Sequence[Outcome]) -> list[Throttled]:
    return [outcome for outcome in outcomes if isinstance(outcome, Throttled)]


def arrivals(store: Scripted) -> list[tuple[float, int]]:
    """Return the time of each call, in seconds since the first, and its number of operations."""
    first = store.called_at[0]
    return [(round(at - first, 6), len(call)) for at, call in zip(store.called_at, store.calls, strict=True)]


@in_virtual_time
async def test_a_burst_passes_immediately_and_the_rest_at_the_rate() -> None:
    store = Scripted()
    policy = RateLimit(store, read=Rate(10, 5), write=None)
    await asyncio.gather(*(policy.apply([Get(f"{index}")], Budget(now() + 10)) for index in range(8)))
    assert arrivals(store) == [(0, 1)] * 5 + [(0.1, 1), (0.2, 1), (0.3, 1)]
    assert [operation.key for [operation] in store.calls] == [f"{index}" for index in range(8)]


@in_virtual_time
async def test_a_batch_larger_than_the_bucket_passes_in_parts_and_leaves_no_debt() -> None:
    """Samza: a batch of 100 at 10 a second passed immediately, and the next caller paid for it (W30)."""
    store = Scripted()
    policy = RateLimit(store, read=Rate(100, 20), write=None)
    outcomes = await policy.apply(gets(50), Budget(now() + 10))
    assert outcomes == [None] * 50
    assert arrivals(store) == [(0, 20), (0.1, 10), (0.2, 10), (0.3, 10)]
    assert [operation.key for call in store.calls for operation in call] == [f"k{index}" for index in range(50)]
    started = now()
    await policy.apply([Get("next")], Budget(started + 10))
    assert now() == pytest.approx(started + 0.01), "the next pays for itself, not for the batch before it"


@in_virtual_time
async def test_a_large_batch_does_not_starve_others() -> None:
    store = Scripted()
    policy = RateLimit(store, read=Rate(100, 10), write=None)
    batch = asyncio.create_task(policy.apply(gets(500), Budget(now() + 60)))
    await asyncio.sleep(0.5)
    started = now()
    await policy.apply([Get("one")], Budget(now() + 10))
    assert now() - started <= 0.21
    assert not batch.done()
    assert await batch == [None] * 500


@in_virtual_time
async def test_a_waiting_write_does_not_delay_a_read() -> None:
    """Samza: one thread waited for reads and writes alike, and a write of 0.8 s delayed every read (W28)."""
    store = Scripted()
    policy = RateLimit(store, read=Rate(1000, 10), write=Rate(1, 1))
    await policy.apply([put("a")])
    writes = [asyncio.create_task(policy.apply([put("b")], Budget(now() + 60))) for _ in range(20)]
    await asyncio.sleep(0)
    started = now()
    assert len(await policy.apply(gets(10), Budget(now() + 1))) == 10
    assert now() == started
    for write in writes:
        write.cancel()


@in_virtual_time
async def test_a_call_without_enough_credits_in_time_is_rejected_immediately() -> None:
    store = Scripted()
    policy = RateLimit(store, read=None, write=Rate(1, 1))
    await policy.apply([put("a")])
    waiting = [asyncio.create_task(policy.apply([put(f"{index}")], Budget(now() + 10))) for index in range(3)]
    await asyncio.sleep(0)
    started = now()
    [outcome] = await policy.apply([put("late")], Budget(started + 2.5))
    assert now() == started
    assert isinstance(outcome, Throttled)
    assert (outcome.applied, outcome.retriable) == ("no", True)
    assert outcome.retry_after_s == pytest.approx(4)
    assert "rate_per_s" in outcome.detail
    assert "late" not in outcome.detail
    assert {type(answer) for [answer] in await asyncio.gather(*waiting)} == {Written}
    assert len(store.calls) == 4


@in_virtual_time
async def test_only_the_part_of_a_batch_without_credits_in_time_is_rejected() -> None:
    store = Scripted()
    policy = RateLimit(store, read=None, write=Rate(10, 10))
    started = now()
    outcomes = await policy.apply(puts(100), Budget(started + 2.05))
    assert [type(outcome) for outcome in outcomes] == [Written] * 30 + [Throttled] * 70
    assert now() <= started + 2.05
    assert all(error.applied == "no" and (error.retry_after_s or 0) > 0 for error in throttled(outcomes))


@in_virtual_time
async def test_a_call_cancelled_while_waiting_returns_its_credits() -> None:
    store = Scripted()
    policy = RateLimit(store, read=Rate(1, 1), write=None)
    await policy.apply([Get("a")])
    calls = [asyncio.create_task(policy.apply([Get(f"{index}")], Budget(now() + 60))) for index in range(4)]
    started = now()
    await asyncio.sleep(0.5)
    calls[0].cancel()
    calls[2].cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    assert [operation.key for [operation] in store.calls] == ["a", "1", "3"]
    assert now() == pytest.approx(started + 2)


@in_virtual_time
async def test_with_any_callers_at_most_the_burst_and_the_rate_pass() -> None:
    chance = random.Random(20)
    store = Scripted()
    policy = RateLimit(store, read=Rate(200, 40), write=None)
    sent, refused = 0, 0

    async def caller(index: int) -> None:
        nonlocal sent, refused
        await asyncio.sleep(chance.uniform(0, 5))
        count = chance.choice([1, 1, 1, 5, 30, 100])
        task = asyncio.create_task(policy.apply(gets(count, f"{index}-"), Budget(now() + chance.uniform(0.01, 3))))
        if chance.random() < 0.2:
            asyncio.get_running_loop().call_later(chance.uniform(0, 1), task.cancel)
        [outcomes] = await asyncio.gather(task, return_exceptions=True)
        if isinstance(outcomes, list):
            sent, refused = sent + len(outcomes), refused + len(throttled(outcomes))

    await asyncio.gather(*(caller(index) for index in range(100)))
    passed = arrivals(store)
    for first, last in itertools.combinations(range(len(passed)), 2):
        between_s = passed[last][0] - passed[first][0]
        assert sum(count for _, count in passed[first : last + 1]) <= 40 + 200 * between_s + 1e-3
    assert sum(count for _, count in passed) >= sent - refused > 0
    assert refused > 0


@in_virtual_time
async def test_waits_and_refusals_are_counted() -> None:
    """Samza: waits of puts were counted as those of updates (W41)."""
    registry = CollectorRegistry()
    policy = RateLimit(Scripted(), read=Rate(100), write=Rate(10, 1), metrics=PolicyMetrics(registry))
    await policy.apply(gets(100))
    await policy.apply(puts(4), Budget(now() + 0.25))

    def value(name: str, direction: str) -> float | None:
        return registry.get_sample_value(f"tableside_rate_limit_{name}", {"table": "t", "direction": direction})

    assert (value("throttled_total", "read"), value("throttled_total", "write")) == (0, 1)
    assert (value("wait_seconds_count", "read"), value("wait_seconds_count", "write")) == (0, 2)
    assert value("wait_seconds_sum", "write") == pytest.approx(0.2)


# A limit for each caller in all tables


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
    assert len(buckets._buckets) == 3
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
