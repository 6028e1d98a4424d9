"""Only failed operations that may succeed are retried, never applied twice, within limits of time and rate."""

import asyncio
import itertools
import math
import random
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from contract import PolicyContract, Time, put, same, update
from support.scripted import Fault, Scripted
from support.virtual_time import in_virtual_time, now
from tableside.core import values
from tableside.core.budget import Budget
from tableside.core.errors import (
    Contended,
    DeadlineExceeded,
    InvalidOperation,
    Overloaded,
    PreconditionFailed,
    RecordNotFound,
    StoreUnavailable,
    TableError,
    Throttled,
    TooLarge,
)
from tableside.core.operations import Delete, Get, Operation, Outcome, Record, Token, Update, Written
from tableside.core.store import Policy, Store
from tableside.policies.metrics import PolicyMetrics
from tableside.policies.rate_limit import Rate, RateLimit
from tableside.policies.retry import Retry, RetryBudget, RetrySchedule
from tableside.policies.timeout import Timeout


class TestRetry(PolicyContract):
    def around(self, inner: Store, time: Time) -> Policy:
        return retry(inner)


class TestRetryOfAStoreThatOftenFails(PolicyContract):
    """The shared suite around a store whose operations usually fail a few times before they succeed."""

    def around(self, inner: Store, time: Time) -> Policy:
        chance = random.Random(4)
        failing = Scripted(inner)

        def fault(operation: Operation, call: int) -> Fault:
            kind = chance.choice([None, None, Throttled, StoreUnavailable, Contended])
            return kind("it may pass") if kind else None

        failing.fault = fault
        return retry(failing, 99, pause_s=0, budget=RetryBudget(share=100))


def failing(kind: type[TableError] = StoreUnavailable, times: float = math.inf, **rest: Any) -> Scripted:
    """Return a store whose first calls fail."""
    store = Scripted()
    store.fault = lambda operation, call: kind("it fails", **rest) if call <= times else None
    return store


def retry(store: Store, attempts_max: int = 3, **rest: Any) -> Retry:
    """Return a store with the same retries for reads and writes."""
    own = {name: rest.pop(name) for name in ("pause_s", "pause_max_s") if name in rest}
    attempts = RetrySchedule(attempts_max=attempts_max, **own)
    return Retry(store, read=attempts, write=attempts, **rest)


async def one(policy: Store, operation: Operation, until: float = math.inf) -> Outcome:
    [outcome] = await policy.apply([operation], Budget(until))
    return outcome


TOKEN = Token("w", 1)


# The number of attempts, and which operations they contain


@in_virtual_time
async def test_reads_and_writes_have_separate_numbers_of_attempts() -> None:
    store = failing()
    policy = Retry(store, read=RetrySchedule(attempts_max=4), write=RetrySchedule(attempts_max=2))
    for operation, attempts in ((Get("a"), 4), (put("b"), 2)):
        assert isinstance(await one(policy, operation), StoreUnavailable)
        assert len(store.calls) == attempts
        store.calls.clear()


@in_virtual_time
async def test_only_failed_operations_are_retried_and_count_once() -> None:
    """Samza: a batch was repeated as a whole, and operations that had succeeded were applied twice (W4)."""
    store = Scripted()
    store.fault = lambda operation, call: Throttled("b is throttled") if operation.key == "b" and call < 3 else None
    policy = retry(store)
    operations: list[Operation] = [update(key, {"$inc": {"n": 1}}, {"n": 0}, returning=True) for key in "abc"]
    outcomes = await policy.apply(operations)
    assert [[operation.key for operation in call] for call in store.calls] == [["a", "b", "c"], ["b"], ["b"]]
    for outcome in outcomes:
        assert isinstance(outcome, Written)
        assert outcome.value is not None
        assert same(values.decode(outcome.value), {"n": 1})


@in_virtual_time
async def test_an_error_states_whether_it_is_retriable() -> None:
    store = failing(StoreUnavailable, retriable=False)
    await one(retry(store), Get("a"))
    assert len(store.calls) == 1
    store = failing(TooLarge, 1, retriable=True)
    assert await one(retry(store), Get("a")) is None


@pytest.mark.parametrize("kind", [Overloaded, DeadlineExceeded])
@in_virtual_time
async def test_overload_and_expired_deadlines_are_not_retried(kind: type[TableError]) -> None:
    for operation in (Get("a"), put("a"), put("a", token=TOKEN)):
        store = failing(kind)
        assert isinstance(await one(retry(store), operation, now() + 60), kind)
        assert len(store.calls) == 1


@in_virtual_time
async def test_a_timed_out_attempt_is_retried_until_the_callers_deadline() -> None:
    store = Scripted()
    store.takes_s = lambda operations: 60 if len(store.calls) < 3 else 0.1
    policy = retry(Timeout(store, read_s=1, write_s=2))
    started = now()
    assert await one(policy, Get("a"), started + 10) is None
    assert len(store.calls) == 3
    assert started + 2 < now() < started + 2.5
    store.calls.clear()
    started = now()
    assert isinstance(await one(policy, Get("a"), started + 1.5), TableError)
    assert now() <= started + 1.5


# Which writes


@pytest.mark.parametrize(
    "write",
    [put("a", {"n": 1}), put("a", if_absent=True), update("a", {"$inc": {"n": 1}}, {"n": 0}), Delete("a")],
    ids=["put", "put if absent", "update", "delete"],
)
@in_virtual_time
async def test_a_write_without_token_is_repeated_only_if_it_was_not_applied(write: Operation) -> None:
    store = failing(StoreUnavailable, 1, applied="unknown")
    outcome = await one(retry(store), write)
    assert isinstance(outcome, StoreUnavailable)
    assert outcome.applied == "unknown"
    assert len(store.calls) == 1
    store = failing(StoreUnavailable, 1, applied="no")
    assert isinstance(await one(retry(store), write), Written)
    assert len(store.calls) == 2


@in_virtual_time
async def test_a_write_with_a_token_is_repeated_and_counts_once() -> None:
    store = failing(StoreUnavailable, 1, applied="unknown")
    write = update("a", {"$inc": {"n": 1}}, {"n": 0}, token=TOKEN, returning=True)
    outcome = await one(retry(store), write)
    assert isinstance(outcome, Written)
    assert outcome.replayed, "an attempt before this one applied it"
    assert outcome.value is not None
    assert same(values.decode(outcome.value), {"n": 1})
    found = await one(store, Get("a"))
    assert isinstance(found, Record)
    assert (found.etag, found.value) == (outcome.etag, outcome.value)


@pytest.mark.parametrize(
    "write",
    [put("a", {"n": 1}, order=5), update("a", {"n": 1}, order=5), Delete("a", order=5)],
    ids=["put", "update", "delete"],
)
@in_virtual_time
async def test_a_write_with_an_order_is_repeated_without_effect(write: Operation) -> None:
    store = failing(StoreUnavailable, 1, applied="unknown")
    assert isinstance(await one(retry(store), write), Written)
    assert len(store.calls) == 2
    older = await one(store, put("a", {"n": 0}, order=4))
    assert isinstance(older, Written)
    assert older.superseded == (not isinstance(write, Update))
    found = await one(store, Get("a"))
    assert found is None if isinstance(write, Delete) else isinstance(found, Record) and found.value == b'{"n":1}'


@pytest.mark.parametrize("last", [Throttled, StoreUnavailable, PreconditionFailed, RecordNotFound, DeadlineExceeded])
@in_virtual_time
async def test_an_unknown_earlier_attempt_makes_the_outcome_unknown(last: type[TableError]) -> None:
    store = Scripted()
    store.fault = lambda operation, call: StoreUnavailable("lost", applied="unknown") if call == 1 else last("no")
    outcome = await one(retry(store, 2), put("a", token=TOKEN))
    assert isinstance(outcome, last)
    assert outcome.applied == "unknown"
    assert outcome.retriable == last("x").retriable
    assert outcome.retry_after_s == last("x").retry_after_s


# Pauses


async def pauses(policy: Retry, store: Scripted, until: float = math.inf) -> list[float]:
    """Let a get fail, and return the pauses between its attempts."""
    await one(policy, Get("a"), until)
    times = store.called_at
    return [round(later - earlier, 6) for earlier, later in itertools.pairwise(times)]


@in_virtual_time
async def test_pauses_grow_and_have_full_jitter() -> None:
    store = failing()
    policy = retry(store, 8, pause_s=0.1, pause_max_s=2.0, jitter=lambda: 1.0)
    assert await pauses(policy, store) == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]
    chance = iter([0.5, 0.0, 0.25])
    store = failing()
    policy = retry(store, 4, pause_s=0.1, jitter=lambda: next(chance))
    assert await pauses(policy, store) == [0.05, 0.0, 0.1]


@in_virtual_time
async def test_the_delay_of_the_store_is_respected() -> None:
    store = failing(Throttled, retry_after_s=3.0)
    assert await pauses(retry(store, pause_s=0.1, jitter=lambda: 1.0), store) == [3.1, 3.2]
    started = now()
    store = failing(Throttled, retry_after_s=3.0)
    assert isinstance(await one(retry(store), Get("a"), started + 2), Throttled)
    assert now() == started, "a pause that passes the deadline is not begun"


@in_virtual_time
async def test_every_attempt_pays_the_rate_limit() -> None:
    store = failing()
    policy = retry(RateLimit(store, read=Rate(1, 2), write=None), pause_s=0)
    assert await pauses(policy, store) == [0, 1]


# The retry budget


@in_virtual_time
async def test_a_store_that_is_down_gets_a_limited_share_of_retries() -> None:
    """Samza: without an explicit limit, it retried for ever and without a pause (W25)."""
    store = failing()
    policy = retry(store, 5, pause_s=0.01, budget=RetryBudget(share=0.2, per_s=10, window_s=10))
    for _ in range(1000):
        await asyncio.gather(*(one(policy, Get("a"), now() + 5) for _ in range(5)))
        await asyncio.sleep(0.01)
    repeated = len(store.calls) - 5000
    seconds = store.called_at[-1] - store.called_at[0]
    assert 0.2 * 5000 <= repeated <= 0.2 * 5000 + 10 * seconds + 10 * 10 + 1


@in_virtual_time
async def test_a_lost_connection_does_not_fail_a_batch() -> None:
    store = failing(StoreUnavailable, 1)
    policy = retry(store)
    outcomes = await policy.apply([Get(f"{index}") for index in range(5000)])
    assert outcomes == [None] * 5000
    store.fault = lambda operation, call: StoreUnavailable("again")
    store.calls.clear()
    await one(policy, Get("a"))
    assert len(store.calls) == 1, "that was more than there was: nothing is repeated until it is earned"


def test_invalid_settings_are_rejected_at_construction() -> None:
    """Samza: a delay beyond its limit was detected only at run time (W45)."""
    with pytest.raises(ValueError, match="at most pause_max_s"):
        retry(Scripted(), pause_s=3, pause_max_s=1)


@in_virtual_time
async def test_tables_of_one_store_share_its_budget() -> None:
    budget = RetryBudget(share=0, per_s=0.2, window_s=10)
    stores = [failing(), failing()]
    for store in stores:
        await one(retry(store, 9, pause_s=0, budget=budget), Get("a"))
    assert [len(store.calls) for store in stores] == [3, 1]


@in_virtual_time
async def test_retries_and_the_reasons_for_their_end_are_counted() -> None:
    registry = CollectorRegistry()
    metrics = PolicyMetrics(registry)
    await one(retry(failing(), 3, metrics=metrics), Get("a"))
    await one(retry(failing(StoreUnavailable, 1), 3, metrics=metrics), put("a"))
    await one(retry(failing(), 3, pause_s=1, jitter=lambda: 1.0, metrics=metrics), Get("a"), now() + 1)
    await one(retry(failing(), 3, budget=RetryBudget(0, 0), metrics=metrics), put("a"))
    await one(retry(failing(InvalidOperation), 3, metrics=metrics), put("a"))

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"tableside_retries_{name}", {"table": "t", **labels})

    assert value("total", direction="read") == 2
    assert value("total", direction="write") == 1
    assert value("given_up_total", direction="read", reason="attempts") == 1
    assert value("given_up_total", direction="read", reason="deadline") == 1
    assert value("given_up_total", direction="write", reason="budget") == 1
    assert value("given_up_total", direction="write", reason="attempts") is None
