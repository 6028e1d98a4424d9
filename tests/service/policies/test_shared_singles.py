"""Without lingering, Coalesce sends the single gets, or updates, of one turn of the event loop in one call.

It changes no other call.
"""

import asyncio
from typing import Any

from contract import PolicyContract, Time, one, put, update
from support.scripted import Scripted
from support.virtual_time import in_virtual_time
from tableside.core.operations import Get, Operation, Outcome, Update, Written
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
