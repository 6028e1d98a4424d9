"""An attempt ends in time, and its error states whether it was applied."""

import pytest
from prometheus_client import CollectorRegistry

from contract import PolicyContract, Time, put
from support.scripted import Divided, Scripted
from support.virtual_time import in_virtual_time, now
from tableside.core.budget import Budget
from tableside.core.errors import DeadlineExceeded, StoreUnavailable, TableError
from tableside.core.operations import Get, Written
from tableside.core.store import Policy, Store
from tableside.policies.metrics import PolicyMetrics
from tableside.policies.timeout import GRACE_S, Timeout


class TestTimeout(PolicyContract):
    def around(self, inner: Store, time: Time) -> Policy:
        return Timeout(inner, read_s=60, write_s=60)


def error(outcome: object, kind: type[TableError], applied: str) -> TableError:
    assert isinstance(outcome, kind), outcome
    assert outcome.applied == applied
    assert outcome.retriable
    return outcome


@in_virtual_time
async def test_a_timeout_before_the_callers_deadline_is_store_unavailable() -> None:
    store = Scripted()
    store.takes_s = lambda operations: 60
    started = now()
    [get] = await Timeout(store, read_s=1, write_s=2).apply([Get("a")], budget=Budget(started + 10))
    assert now() == started + 1
    told = error(get, StoreUnavailable, "no")
    assert "1 s" in told.detail
    assert "read" in told.detail
    [written] = await Timeout(store, read_s=1, write_s=2).apply([put("a")], budget=Budget(started + 10))
    assert now() == started + 3
    assert "2 s" in error(written, StoreUnavailable, "unknown").detail
    assert store.cancelled == 0


@in_virtual_time
async def test_a_timeout_at_the_callers_deadline_is_deadline_exceeded() -> None:
    store = Scripted()
    store.takes_s = lambda operations: 60
    started = now()
    outcomes = await Timeout(store, read_s=5, write_s=None).apply([Get("a"), put("b")], budget=Budget(started + 3))
    assert now() == started + 3
    error(outcomes[0], DeadlineExceeded, "no")
    error(outcomes[1], DeadlineExceeded, "unknown")
    assert len(store.calls) == 1, "where both have the same time the call is not divided"


@in_virtual_time
async def test_an_outcome_that_was_not_applied_remains_so() -> None:
    store = Scripted()
    store.fault = lambda operation, call: DeadlineExceeded("not sent") if operation.key == "a" else None
    first, second = await Timeout(store, read_s=1, write_s=1).apply([put("a"), put("b")], budget=Budget(now() + 10))
    error(first, StoreUnavailable, "no")
    assert isinstance(second, Written)


@in_virtual_time
async def test_a_store_that_ignores_its_deadline_is_cancelled_shortly_after() -> None:
    store = Scripted()
    store.deaf, store.takes_s = True, lambda operations: 3600
    started = now()
    policy = Divided(Timeout(store, read_s=1, write_s=1))
    outcomes = await policy.apply([Get("a"), put("b")], budget=Budget(started + 10))
    assert now() == pytest.approx(started + 1 + GRACE_S)
    error(outcomes[0], StoreUnavailable, "no")
    error(outcomes[1], StoreUnavailable, "unknown")
    assert store.cancelled == 2


@in_virtual_time
async def test_timeouts_are_counted_by_direction() -> None:
    registry = CollectorRegistry()
    store = Scripted()
    policy = Divided(Timeout(store, read_s=1, write_s=2, metrics=PolicyMetrics(registry)))
    await policy.apply([Get("a"), put("b")], budget=Budget(now() + 10))
    store.takes_s = lambda operations: 60
    await policy.apply([Get("a"), Get("b"), put("c")], budget=Budget(now() + 10))
    await policy.apply([Get("a"), put("c")], budget=Budget(now() + 0.5))

    def count(direction: str) -> float | None:
        return registry.get_sample_value("tableside_attempt_timeouts_total", {"table": "t", "direction": direction})

    assert (count("read"), count("write")) == (2, 1)
