"""Without lingering, Coalesce sends the single gets, or updates, of one turn of the event loop in one call.

It changes no other call.
"""

import asyncio
from typing import Any

from contract import PolicyContract, Time, one, put, update, value
from support.scripted import Scripted
from support.virtual_time import in_virtual_time
from tableside.core.errors import StoreUnavailable
from tableside.core.operations import Get, Operation, Outcome, Record, Token, Update, Written
from tableside.core.store import Policy, Store
from tableside.core.updates import PACKED_BYTES_MIN, packed, parse
from tableside.policies.coalesce import Coalesce
from tableside.policies.metrics import PolicyMetrics

OPERATIONS_MAX = 10
CALL_S = 1.0


class TestSharedSingles(PolicyContract):
    """The shared suite of policies."""

    def around(self, inner: Store, time: Time) -> Policy:
        return Coalesce(inner, linger_s=None, singles={Get: 3, Update: 2})


def shared(store: Store, metrics: PolicyMetrics | None = None) -> Coalesce:
    singles: dict[type[Operation], int] = {Get: OPERATIONS_MAX, Update: OPERATIONS_MAX}
    return Coalesce(store, linger_s=None, singles=singles, metrics=metrics)


def slow() -> Scripted:
    store = Scripted()
    store.takes_s = lambda operations: CALL_S
    return store


def sizes(store: Scripted) -> list[int]:
    return [len(call) for call in store.calls]


async def together(policy: Policy, *operations: Operation) -> list[Outcome]:
    """Do operations of concurrent callers. A get before them, still in flight, makes them wait for each other."""
    alone = asyncio.create_task(one(policy, Get("in flight")))
    await asyncio.sleep(0)
    outcomes = await asyncio.gather(*(one(policy, operation) for operation in operations))
    await alone
    return outcomes


@in_virtual_time
async def test_single_gets_of_one_turn_share_calls_of_limited_size() -> None:
    store = slow()
    outcomes = await together(shared(store), *(Get(f"{index}") for index in range(25)))
    assert outcomes == [None] * 25
    assert sizes(store) == [1, 10, 10, 5]


@in_virtual_time
async def test_each_caller_gets_the_outcome_of_its_own_key_and_equal_keys_share_one_get() -> None:
    store = slow()
    policy = shared(store)
    await policy.apply([put("a", {"n": 1}), put("b", {"n": 2})])
    store.fault = lambda operation, call: StoreUnavailable("lost") if operation.key == "bad" else None
    outcomes = await together(policy, Get("b"), Get("a"), Get("bad"), Get("b"), Get("absent"))
    assert [each.value for each in outcomes if isinstance(each, Record)] == [b'{"n":2}', b'{"n":1}', b'{"n":2}']
    assert isinstance(outcomes[2], StoreUnavailable)
    assert outcomes[4] is None
    assert [operation.key for operation in store.calls[-1]] == ["b", "a", "bad", "absent"]


@in_virtual_time
async def test_writes_and_batches_pass_unchanged() -> None:
    store = slow()
    policy = shared(store)
    await asyncio.gather(*(policy.apply([put(f"{index}")]) for index in range(3)), policy.apply([Get("x"), Get("y")]))
    assert sizes(store) == [1, 1, 1, 2]


@in_virtual_time
async def test_a_get_without_others_does_not_wait() -> None:
    store = slow()
    policy = shared(store)
    await one(policy, Get("a"))
    for turn in range(3):
        task = asyncio.create_task(one(policy, Get("a")))
        await asyncio.sleep(0)
        assert len(store.calls) == turn + 2
        await task


@in_virtual_time
async def test_a_call_is_cancelled_with_its_last_caller() -> None:
    store = slow()
    policy = shared(store)
    alone = asyncio.create_task(one(policy, Get("in flight")))
    await asyncio.sleep(0)
    tasks = [asyncio.create_task(one(policy, Get(key))) for key in "ab"]
    await asyncio.sleep(CALL_S / 2)
    tasks[0].cancel()
    await asyncio.sleep(0)
    assert store.cancelled == 0
    tasks[1].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await alone
    await policy.close()
    assert store.cancelled == 1


def increment(key: str, **options: Any) -> Operation:
    return update(key, {"$inc": {"n": 1}}, {}, **options)


async def updates_together(policy: Policy, *operations: Operation) -> list[Outcome]:
    """Do updates of concurrent callers. One before them, still in flight, makes them wait for each other."""
    alone = asyncio.create_task(one(policy, increment("in flight")))
    await asyncio.sleep(0)
    outcomes = await asyncio.gather(*(one(policy, operation) for operation in operations))
    await alone
    return outcomes


@in_virtual_time
async def test_single_updates_of_one_turn_share_calls_of_limited_size() -> None:
    store = slow()
    outcomes = await updates_together(shared(store), *(increment(f"{index}") for index in range(25)))
    assert all(isinstance(outcome, Written) and outcome.created for outcome in outcomes)
    assert sizes(store) == [1, 10, 10, 5]


@in_virtual_time
async def test_updates_of_one_record_are_in_different_calls_and_all_are_applied() -> None:
    store = slow()
    policy = shared(store)
    store.fault = lambda operation, call: StoreUnavailable("lost") if operation.key == "bad" else None
    tokened = increment("a", returning=True, token=Token("w", 1))
    outcomes = await updates_together(policy, increment("a"), tokened, increment("bad"), increment("b"), increment("a"))
    assert [type(outcome) for outcome in outcomes] == [Written, Written, StoreUnavailable, Written, Written]
    assert all(len({operation.key for operation in call}) == len(call) for call in store.calls)
    assert (await value(policy, "a"), await value(policy, "b")) == ({"n": 3}, {"n": 1})
    assert isinstance(outcomes[1], Written)
    assert outcomes[1].value is not None


@in_virtual_time
async def test_gets_and_updates_do_not_share_a_call() -> None:
    store = slow()
    policy = shared(store)
    await asyncio.gather(*(one(policy, each(key)) for key in "abc" for each in (Get, increment)))
    assert all(len({type(operation) for operation in call}) == 1 for call in store.calls)


@in_virtual_time
async def test_a_long_update_has_a_call_of_its_own() -> None:
    store = slow()
    long = Update("long", packed(parse({"s": "x" * PACKED_BYTES_MIN})), b"{}")
    outcomes = await updates_together(shared(store), increment("a"), long, increment("b"))
    assert all(isinstance(outcome, Written) for outcome in outcomes)
    assert sorted(sizes(store)) == [1, 1, 2]


@in_virtual_time
async def test_an_update_whose_caller_was_cancelled_is_not_sent() -> None:
    store = slow()
    policy = shared(store)
    alone = asyncio.create_task(one(policy, increment("in flight")))
    await asyncio.sleep(0)
    tasks = [asyncio.create_task(one(policy, increment(key))) for key in "ab"]
    await asyncio.sleep(0)
    tasks[0].cancel()
    await asyncio.gather(*tasks, alone, return_exceptions=True)
    assert [[operation.key for operation in call] for call in store.calls] == [["in flight"], ["b"]]
