"""Coalesce combines, splits and orders calls, and returns the outcomes of each caller."""

import asyncio
from collections.abc import Sequence
from typing import Any, ClassVar

import pytest
from prometheus_client import CollectorRegistry

from contract import PolicyContract, Time, one, put, update, value
from support.scripted import RecordingStore
from support.virtual_time import in_virtual_time, now, run
from tableside.core.budget import NO_DEADLINE, Budget
from tableside.core.errors import DeadlineExceeded, Internal
from tableside.core.operations import Delete, Get, Operation, Outcome, Put, Record, Update, Written
from tableside.core.store import Policy, Store
from tableside.policies.coalesce import SHARED_BYTES_MAX, Coalesce
from tableside.policies.metrics import PolicyMetrics

KINDS: tuple[type[Operation], ...] = (Get, Put, Update, Delete)
LARGE: dict[str, Any] = {"operations_max": 1000, "bytes_max": 2**22, "singles": dict.fromkeys(KINDS, 1000)}


def limited(operations_max: int, bytes_max: int) -> dict[str, Any]:
    return {
        "operations_max": operations_max,
        "bytes_max": bytes_max,
        "singles": dict.fromkeys(KINDS, operations_max),
    }


class Contract(PolicyContract):
    """The contract with the options of a subclass."""

    options: ClassVar[dict[str, Any]]

    def around(self, inner: Store, time: Time) -> Policy:
        return Coalesce(inner, **self.options)


class TestOneTurn(Contract):
    options = LARGE | {"metrics": PolicyMetrics(CollectorRegistry())}


class TestSmallCalls(Contract):
    options = limited(3, 100)


class TestSharedSingles(Contract):
    options: ClassVar[dict[str, Any]] = {"singles": {Get: 3, Update: 2}}


class TestCutOnly(Contract):
    options: ClassVar[dict[str, Any]] = {"operations_max": 7, "bytes_max": 1000}


# Which operations share a call


@in_virtual_time
async def test_operations_of_one_loop_turn_share_a_call() -> None:
    store = RecordingStore()
    coalesce = Coalesce(store, **LARGE)
    await store.apply([put(f"{index}", {"n": index}) for index in range(50)])
    asked: list[Operation] = [*(Get(f"{index}") for index in range(60)), put("new"), Delete("0x")]
    outcomes = await asyncio.gather(*(one(coalesce, operation) for operation in asked))
    assert store.sizes == [50, 60, 1, 1], "a call has one kind of operation"
    assert [isinstance(outcome, Record) for outcome in outcomes] == [True] * 50 + [False] * 12
    assert [type(outcome) for outcome in outcomes[60:]] == [Written, Written]


@in_virtual_time
async def test_a_call_that_is_full_takes_no_more_operations() -> None:
    store = RecordingStore()
    coalesce = Coalesce(store, **limited(10, 1000))
    began = now()
    await asyncio.gather(*(one(coalesce, Get(f"{index}")) for index in range(30)))
    assert (store.sizes, now()) == ([10, 10, 10], began)
    await asyncio.gather(*(one(coalesce, put(f"{index}", {"x": "x" * 392})) for index in range(4)))
    assert store.sizes[3:] == [2, 2]


@in_virtual_time
async def test_an_operation_too_large_for_a_shared_call_is_sent_alone() -> None:
    store = RecordingStore()
    coalesce = Coalesce(store, **limited(100, 100))
    large: list[Operation] = [
        put("b", {"x": "x" * 200}),
        update("c", {"x": "x" * 200}, {}),
        update("d", {}, {"x": "x" * 200}),
    ]
    await asyncio.gather(*(one(coalesce, operation) for operation in [put("a"), *large, Get("e")]))
    assert sorted(operation.key for [operation] in store.calls) == ["a", "b", "c", "d", "e"]


@in_virtual_time
async def test_a_call_that_is_too_large_is_sent_in_a_limited_number_of_concurrent_parts() -> None:
    store = RecordingStore(takes_s=1.0)
    coalesce = Coalesce(store, **limited(10, 1000))
    began = now()
    outcomes = await coalesce.apply([put(f"{index}", {"n": index}) for index in range(155)])
    assert {type(outcome) for outcome in outcomes} == {Written}
    assert (sorted(store.sizes), store.under_way_max, now()) == ([5] + [10] * 15, 8, began + 2.0)
    store.calls.clear()
    outcomes = await coalesce.apply([Get(f"{index}") for index in range(25)])
    assert [outcome.value for outcome in outcomes if isinstance(outcome, Record)] == [
        b'{"n":%d}' % index for index in range(25)
    ]
    assert sorted(store.sizes) == [5, 10, 10]


@in_virtual_time
async def test_repeatedly_concurrent_callers_share_calls() -> None:
    store = RecordingStore(takes_s=1.0)
    coalesce = Coalesce(store, **LARGE)

    async def caller(number: int) -> None:
        for turn in range(10):
            await one(coalesce, Get(f"{number}.{turn}"))

    await asyncio.gather(*map(caller, range(100)))
    assert store.sizes[-8:] == [100] * 8


# Only single operations of the chosen kinds share a call


SINGLES: dict[str, Any] = {"singles": {Get: 10, Update: 10}}


def increment(key: str) -> Operation:
    return update(key, {"$inc": {"n": 1}}, {})


@in_virtual_time
async def test_a_single_get_without_others_does_not_wait() -> None:
    store = RecordingStore(takes_s=1.0)
    policy = Coalesce(store, **SINGLES)
    await one(policy, Get("a"))
    again = asyncio.create_task(one(policy, Get("a")))
    await asyncio.sleep(0)
    assert len(store.calls) == 2
    await again


@in_virtual_time
async def test_gets_updates_other_writes_and_batches_are_in_separate_calls() -> None:
    store = RecordingStore(takes_s=1.0)
    policy = Coalesce(store, **SINGLES)
    single = [one(policy, each(key)) for key in "abc" for each in (Get, increment, put)]
    await asyncio.gather(*single, policy.apply([Get("x"), Get("y")]))
    assert sorted(store.sizes) == [1, 1, 1, 2, 3, 3]


@in_virtual_time
async def test_a_long_update_has_a_call_of_its_own() -> None:
    store = RecordingStore(takes_s=1.0)
    policy = Coalesce(store, **SINGLES)
    in_flight = asyncio.create_task(one(policy, increment("in flight")))
    await asyncio.sleep(0)  # the others wait for each other
    long = update("long", {"s": "x" * SHARED_BYTES_MAX}, {})
    outcomes = await asyncio.gather(*(one(policy, each) for each in (increment("a"), long, increment("b"))))
    assert all(isinstance(outcome, Written) for outcome in outcomes)
    await in_flight
    assert sorted(store.sizes) == [1, 1, 2]


# Equal keys


@in_virtual_time
async def test_gets_of_one_key_in_one_call_are_combined() -> None:
    store = RecordingStore()
    coalesce = Coalesce(store, **LARGE)
    await one(store, put("a", {"n": 1}))
    outcomes = await asyncio.gather(*(one(coalesce, Get(key)) for key in "aba"))
    assert store.calls[1:] == [[Get("a"), Get("b")]]
    assert outcomes[0] == outcomes[2] != outcomes[1]


@in_virtual_time
async def test_writes_of_one_key_are_in_different_calls_and_all_are_applied() -> None:
    store = RecordingStore(takes_s=1.0)
    coalesce = Coalesce(store, **LARGE)
    began = now()
    increments = [update("a", {"$inc": {"n": 1}}, {"n": 0}) for _ in range(3)]
    await asyncio.gather(*(one(coalesce, operation) for operation in [*increments, update("b", {}, {})]))
    assert (sorted(store.sizes), now()) == ([1, 1, 2], began + 1.0)
    assert await value(store, "a") == {"n": 3}


# Deadlines


@in_virtual_time
async def test_a_call_has_the_latest_deadline_and_each_caller_its_own() -> None:
    store = RecordingStore(takes_s=5.0)
    coalesce = Coalesce(store, **LARGE)
    began, ended = now(), {}

    async def timed(operation: Operation, until: float) -> Outcome:
        [outcome] = await coalesce.apply([operation], Budget(until))
        ended[operation.key] = now() - began
        return outcome

    patient, for_ever, write, get = await asyncio.gather(
        timed(put("c"), began + 9),
        timed(Get("d"), began + 8),
        timed(put("b"), began + 2),
        timed(Get("a"), began + 1),
    )
    assert sorted(store.untils) == [began + 8, began + 9]
    assert isinstance(get, DeadlineExceeded)
    assert get.applied == "no"
    assert isinstance(write, DeadlineExceeded)
    assert write.applied == "unknown"
    assert isinstance(patient, Written)
    assert for_ever is None
    assert ended == pytest.approx({"a": 1, "b": 2, "c": 5, "d": 5}, abs=0.002)
    assert isinstance(await one(store, Get("b")), Record)


# Cancelled callers


@in_virtual_time
async def test_cancelling_a_caller_removes_its_unsent_operations() -> None:
    store = RecordingStore(takes_s=1.0)
    coalesce = Coalesce(store, **LARGE)
    tasks = [asyncio.create_task(one(coalesce, put(key))) for key in "abc"]
    await asyncio.sleep(0)
    tasks[1].cancel()
    assert [type(outcome) for outcome in await asyncio.gather(*tasks, return_exceptions=True)] == [
        Written,
        asyncio.CancelledError,
        Written,
    ]
    assert store.calls == [[put("a"), put("c")]]
    await coalesce.close()


@in_virtual_time
async def test_a_caller_that_is_cancelled_at_its_deadline_counts_once() -> None:
    coalesce, began = Coalesce(RecordingStore(takes_s=2.0), **LARGE), now()
    early = asyncio.create_task(coalesce.apply([put("a")], Budget(began + 1)))

    async def cancel() -> None:
        await asyncio.sleep(1)
        assert early.cancel()

    canceller = asyncio.create_task(cancel())
    await asyncio.sleep(0)
    [written] = await coalesce.apply([put("b")], Budget(began + 9))
    assert isinstance(written, Written)
    await canceller
    assert early.cancelled()


# Failures


@in_virtual_time
async def test_an_exception_affects_only_the_operations_of_its_call(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(RecordingStore):
        async def apply(self, operations: Sequence[Operation], budget: Budget = NO_DEADLINE) -> list[Outcome]:
            if any(operation.key == "raises" for operation in operations):
                raise ZeroDivisionError
            return await super().apply(operations, budget)

    coalesce = Coalesce(Broken(), **LARGE)
    write, beside, read = await asyncio.gather(*(one(coalesce, each) for each in (put("raises"), put("x"), Get("x"))))
    for failed in (write, beside):
        assert isinstance(failed, Internal)
        assert (failed.applied, failed.retriable) == ("unknown", False)
    assert read is None
    assert len([entry for entry in caplog.records if entry.exc_info]) == 1


def test_calls_are_counted_by_size_and_reason() -> None:
    registry = CollectorRegistry()
    metrics = PolicyMetrics(registry)

    async def main() -> None:
        coalesce = Coalesce(RecordingStore(), **limited(20, 10_000), metrics=metrics)
        await asyncio.gather(*(one(coalesce, Get(key)) for key in "aaab"))
        await asyncio.gather(*(one(coalesce, Get(f"{index}")) for index in range(23)))
        await coalesce.apply([Get(f"{index}") for index in range(30)])
        cut = Coalesce(RecordingStore(), operations_max=20, bytes_max=10_000, metrics=metrics)
        await cut.apply([Get(f"{index}") for index in range(30)])

    run(main())

    def sample(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"tableside_{name}", {"table": "t", **labels})

    counts = {
        reason: (
            sample("call_operations_count", reason=reason),
            sample("call_operations_sum", reason=reason),
        )
        for reason in ("direct", "waited", "full")
    }
    assert counts == {"direct": (4, 60), "waited": (2, 5), "full": (1, 20)}
    assert sample("coalesce_wait_seconds_count") == 3
    assert sample("coalesced_gets_total") == 2
