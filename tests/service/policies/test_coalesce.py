"""Coalesce combines, splits and orders calls, and returns the outcomes of each caller."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import pytest
from prometheus_client import CollectorRegistry

from contract import PolicyContract, Time, one, put, update, value
from support.scripted import Scripted
from support.virtual_time import in_virtual_time, now, run
from tableside.core.budget import NO_DEADLINE, Budget
from tableside.core.errors import DeadlineExceeded, Internal, RecordNotFound, TableError
from tableside.core.operations import Delete, Get, Operation, Outcome, Put, Record, Update, Written
from tableside.core.store import Policy, Store
from tableside.core.updates import PACKED_BYTES_MIN, packed, parse
from tableside.policies.coalesce import Coalesce
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


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


class RecordingStore(Scripted):
    """A store whose calls have different keys. The test sets their duration, and may answer them."""

    def __init__(self, takes_s: float = 0.0) -> None:
        super().__init__()
        self.takes_s = lambda operations: takes_s
        self.answer: Callable[[Sequence[Operation]], list[Outcome] | None] = lambda operations: None

    async def apply(self, operations: Sequence[Operation], budget: Budget = NO_DEADLINE) -> list[Outcome]:
        assert len({operation.key for operation in operations}) == len(operations)
        outcomes = self.answer(operations)
        return await super().apply(operations, budget) if outcomes is None else outcomes

    @property
    def sizes(self) -> list[int]:
        return [len(call) for call in self.calls]


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
    keys = sorted([operation.key for operation in call] for call in store.calls)
    assert keys == [["a"], ["b"], ["c"], ["d"], ["e"]]
    store.calls.clear()
    await coalesce.apply([put(f"{index}") for index in range(30)] + large[:1])
    assert store.sizes == [30, 1]


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
async def test_without_sharing_calls_are_passed_through() -> None:
    store = RecordingStore()
    coalesce = Coalesce(store, operations_max=1000, bytes_max=2**22)
    await asyncio.gather(one(coalesce, Get("a")), one(coalesce, Get("a")), coalesce.apply([Get("b"), put("c")]))
    assert store.sizes == [1, 1, 2]
    await coalesce.close()


@in_virtual_time
async def test_a_sequential_caller_does_not_linger() -> None:
    store = RecordingStore(takes_s=1.0)
    coalesce = Coalesce(store, **LARGE)
    await one(coalesce, Get("a"))
    for key in "bc":
        task = asyncio.create_task(one(coalesce, Get(key)))
        await asyncio.sleep(0)
        assert store.under_way == 1, "it waited for a turn of the loop"
        await task


@pytest.mark.parametrize("callers", [2, 100])
@in_virtual_time
async def test_repeatedly_concurrent_callers_share_calls(callers: int) -> None:
    store = RecordingStore(takes_s=1.0)
    coalesce = Coalesce(store, **LARGE)
    await one(coalesce, Get("a"))
    store.calls.clear()

    async def caller(number: int) -> None:
        for turn in range(10):
            await one(coalesce, Get(f"{number}.{turn}"))

    await asyncio.gather(*map(caller, range(callers)))
    assert store.sizes[-8:] == [callers] * 8


# Only single operations of the chosen kinds share a call


SINGLES: dict[str, Any] = {"singles": {Get: 10, Update: 10}}


def increment(key: str) -> Operation:
    return update(key, {"$inc": {"n": 1}}, {})


@in_virtual_time
async def test_other_writes_and_batches_do_not_share_calls() -> None:
    store = RecordingStore(takes_s=1.0)
    policy = Coalesce(store, **SINGLES)
    await asyncio.gather(*(policy.apply([put(f"{index}")]) for index in range(3)), policy.apply([Get("x"), Get("y")]))
    assert store.sizes == [1, 1, 1, 2]


@in_virtual_time
async def test_a_single_get_without_others_does_not_wait() -> None:
    store = RecordingStore(takes_s=1.0)
    policy = Coalesce(store, **SINGLES)
    await one(policy, Get("a"))
    for turn in range(3):
        task = asyncio.create_task(one(policy, Get("a")))
        await asyncio.sleep(0)
        assert len(store.calls) == turn + 2
        await task


@in_virtual_time
async def test_single_gets_and_updates_do_not_share_a_call() -> None:
    store = RecordingStore(takes_s=1.0)
    policy = Coalesce(store, **SINGLES)
    await asyncio.gather(*(one(policy, each(key)) for key in "abc" for each in (Get, increment)))
    assert all(len({type(operation) for operation in call}) == 1 for call in store.calls)


@in_virtual_time
async def test_a_long_update_has_a_call_of_its_own() -> None:
    store = RecordingStore(takes_s=1.0)
    policy = Coalesce(store, **SINGLES)
    in_flight = asyncio.create_task(one(policy, increment("in flight")))
    await asyncio.sleep(0)  # the others wait for each other
    long = Update("long", packed(parse({"s": "x" * PACKED_BYTES_MIN})), b"{}")
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
async def test_a_get_does_not_join_an_earlier_call() -> None:
    store = RecordingStore(takes_s=1.0)
    coalesce = Coalesce(store, **LARGE)
    early = asyncio.create_task(one(coalesce, Get("a")))
    await asyncio.sleep(0.5)
    late = asyncio.create_task(one(coalesce, Get("a")))
    await turns()
    assert store.under_way == 2
    await asyncio.gather(early, late)


@in_virtual_time
async def test_writes_of_one_key_are_in_different_calls_and_all_are_applied() -> None:
    store = RecordingStore(takes_s=1.0)
    coalesce = Coalesce(store, **LARGE)
    began = now()
    increments = [update("a", {"$inc": {"n": 1}}, {"n": 0}) for _ in range(3)]
    await asyncio.gather(*(one(coalesce, operation) for operation in [*increments, update("b", {}, {})]))
    assert (sorted(store.sizes), now()) == ([1, 1, 2], began + 1.0)
    assert await value(store, "a") == {"n": 3}


LARGE_WRITE: list[Operation] = [put(f"{index}", {"n": 1}) for index in range(30)]
LARGE_READ: list[Operation] = [Get(f"{index}") for index in range(30)]


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


@pytest.mark.parametrize("operation", [Get, put])
@in_virtual_time
async def test_a_call_without_waiting_callers_is_cancelled(operation: Callable[[str], Operation]) -> None:
    store = RecordingStore(takes_s=100.0)
    coalesce = Coalesce(store, **limited(100, 10_000))
    single = [asyncio.create_task(one(coalesce, operation(key))) for key in "cab"]
    large = asyncio.create_task(coalesce.apply(LARGE_READ))
    await turns()
    for left, task in enumerate(single[:2]):
        task.cancel()
        await turns()
        assert store.cancelled == 0, left
    single[2].cancel()
    large.cancel()
    await turns()
    assert (store.cancelled, store.under_way) == (2, 0)
    await coalesce.close()


# Failures


@in_virtual_time
async def test_a_failed_operation_does_not_affect_other_callers() -> None:
    store = RecordingStore()
    coalesce = Coalesce(store, **LARGE)
    await store.apply([put("rich", {"rich": "data"}), put("word", {"n": "x"})])
    outcomes = await asyncio.gather(
        one(coalesce, update("rich", {"$inc": {"n": 1}}, {"n": 0})),
        one(coalesce, update("absent", {"$inc": {"n": 1}})),
        one(coalesce, update("word", {"$inc": {"n": 1}})),
        one(coalesce, update("first", {"$inc": {"n": 1}}, {"n": 10})),
        one(coalesce, Get("other")),
    )
    assert len(store.calls) == 3
    assert [isinstance(outcome, TableError) for outcome in outcomes] == [False, True, True, False, False]
    assert isinstance(outcomes[1], RecordNotFound)
    assert await value(coalesce, "rich") == {"rich": "data", "n": 1}
    assert await value(coalesce, "first") == {"n": 11}


@pytest.mark.parametrize("operations_max", [1, 30, 1000])
@in_virtual_time
async def test_an_exception_affects_only_the_operations_of_its_call(
    operations_max: int, caplog: pytest.LogCaptureFixture
) -> None:
    store = RecordingStore(takes_s=0.1)

    def answer(operations: Sequence[Operation]) -> list[Outcome] | None:
        keys = {operation.key for operation in operations}
        if "raises" in keys:
            raise ZeroDivisionError
        return [] if "short" in keys else None

    store.answer = answer
    for bad in ("raises", "short"):
        coalesce = Coalesce(store, **limited(operations_max, 10_000))
        first = asyncio.gather(one(coalesce, put(bad)), one(coalesce, put("x")), one(coalesce, Get("x")))
        await turns()
        large = await coalesce.apply(LARGE_WRITE)
        assert not any(isinstance(outcome, TableError) for outcome in large)
        write, beside, read = await first
        assert isinstance(write, Internal)
        assert (write.applied, write.retriable) == ("unknown", False)
        assert isinstance(beside, Written if operations_max == 1 else Internal)
        assert not isinstance(read, TableError)
    assert len([entry for entry in caplog.records if entry.exc_info]) == 2
    assert isinstance(await one(coalesce, put("good")), Written)
    await coalesce.close()


@in_virtual_time
async def test_an_operation_sent_after_an_outcome_is_sent_once() -> None:
    store = RecordingStore()
    coalesce = Coalesce(store, **LARGE)

    async def twice(key: str) -> None:
        for _ in range(2):
            assert isinstance(await one(coalesce, update(key, {"$inc": {"n": 1}}, {"n": 0})), Written)

    await asyncio.gather(*map(twice, "aabc"))
    assert [await value(coalesce, key) for key in "abc"] == [{"n": 4}, {"n": 2}, {"n": 2}]


# Closing


@in_virtual_time
async def test_on_close_everything_queued_is_sent_and_answered() -> None:
    store = RecordingStore(takes_s=1.0)
    coalesce = Coalesce(store, **limited(100, 10_000))
    began = now()
    tasks = [asyncio.create_task(one(coalesce, put(key, {"n": index}))) for index, key in enumerate("abaa")]
    large = asyncio.create_task(coalesce.apply(LARGE_WRITE))
    await turns()
    await asyncio.gather(coalesce.close(), coalesce.close())
    assert now() == began + 1.0
    assert store.under_way == 0
    assert {type(outcome) for outcome in await asyncio.gather(*tasks)} == {Written}
    await large


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
