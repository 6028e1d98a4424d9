"""Batches of large values: a store reads them in pieces, and a table asks for more while the response has room."""

import json
from collections.abc import Sequence

import pytest

from contract import put, update
from tableside.catalog import Table
from tableside.core import NOT_READ, Get, Operation, Outcome, Record, TableSpec, TooLarge, Written
from tableside.core.budget import NO_DEADLINE, Budget, Reduce, ValueRoom
from tableside.core.store import Policy
from tableside.policies.retry import Retry, RetrySchedule
from tableside.stores.memory import MemoryStore

VALUE = {"n": 1, "text": "x" * 1000}
VALUE_BYTES = len(json.dumps(VALUE, separators=(",", ":")))


class PiecewiseStore(Policy):
    """A store that attempts only the first operations of a call."""

    def __init__(self, attempted_max: int = 2) -> None:
        super().__init__(MemoryStore(TableSpec("t")))
        self.attempted_max = attempted_max
        self.calls: list[list[Operation]] = []

    async def apply(self, operations: Sequence[Operation], budget: Budget = NO_DEADLINE) -> list[Outcome]:
        self.calls.append(list(operations))
        done = await self._inner.apply(operations[: max(0, self.attempted_max)], budget)
        return [*done, *[NOT_READ] * (len(operations) - len(done))]


@pytest.fixture
async def store() -> PiecewiseStore:
    store = PiecewiseStore(1000)
    await store.apply([put(f"k{index}", VALUE) for index in range(10)])
    store.attempted_max = 2
    store.calls.clear()
    return store


def gets(count: int) -> list[Operation]:
    return [Get(f"k{index}") for index in range(count)]


async def test_gets_that_a_call_left_out_are_in_the_next_call(store: PiecewiseStore) -> None:
    outcomes = await Table(store).batch(gets(7))
    assert all(isinstance(outcome, Record) for outcome in outcomes)
    assert [len(call) for call in store.calls] == [7, 5, 3, 1]


async def test_gets_beyond_the_room_are_too_large_and_not_sent(store: PiecewiseStore) -> None:
    outcomes = await Table(store).batch(gets(10), Budget(room=ValueRoom(3 * VALUE_BYTES)))
    assert [type(outcome) for outcome in outcomes] == [Record] * 4 + [type(NOT_READ)] * 6
    assert (NOT_READ.code, NOT_READ.retriable, NOT_READ.applied) == ("too_large", True, "no")
    assert [len(call) for call in store.calls] == [10, 1, 1], "as many as fit, and the one that exceeds the room"


async def test_values_are_reduced_before_they_are_counted(store: PiecewiseStore) -> None:
    reductions: list[int] = []

    def reduction() -> Reduce:
        reductions.append(1)
        return lambda value: b'{"n":1}'

    room = ValueRoom(VALUE_BYTES, reduction)
    outcomes = await Table(store).batch(gets(10), Budget(room=room))
    assert [outcome.value for outcome in outcomes if isinstance(outcome, Record)] == [b'{"n":1}'] * 10
    assert len(reductions) == 1


async def test_values_that_writes_return_are_reduced_too(store: PiecewiseStore) -> None:
    updates: list[Operation] = [update(f"k{index}", {"$inc": {"n": 1}}, returning=True) for index in range(6)]
    room = ValueRoom(VALUE_BYTES, lambda: lambda value: b'{"n":2}')
    outcomes = await Table(store).batch([*updates, put("k6", VALUE)], Budget(room=room))
    values = [outcome.value for outcome in outcomes if isinstance(outcome, Written)]
    assert values == [b'{"n":2}'] * 6 + [None]


async def test_writes_beyond_the_room_are_applied_and_return_no_value(store: PiecewiseStore) -> None:
    updates: list[Operation] = [update(f"k{index}", {"$inc": {"n": 1}}, returning=True) for index in range(6)]
    outcomes = await Table(store).batch(updates, Budget(room=ValueRoom(VALUE_BYTES)))
    values = [outcome.value is not None for outcome in outcomes if isinstance(outcome, Written)]
    assert values == [True, True, False, False, False, False]
    store.attempted_max = 100
    for outcome in await Table(store).batch(gets(6)):
        assert isinstance(outcome, Record)
        assert json.loads(outcome.value)["n"] == 2


async def test_all_rounds_share_the_room_and_a_get_without_room_does_not_block_writes(
    store: PiecewiseStore,
) -> None:
    store.attempted_max = 100
    pair: list[Operation] = [Get("k0"), update("k0", {"$inc": {"n": 1}}, if_match=("*",))]
    outcomes = await Table(store).batch(pair * 4, Budget(room=ValueRoom(1.5 * VALUE_BYTES)))
    assert [type(outcome) for outcome in outcomes[::2]] == [Record, Record, type(NOT_READ), type(NOT_READ)]
    assert all(isinstance(outcome, Written) for outcome in outcomes[1::2])


async def test_a_single_get_is_sent_until_it_is_read() -> None:
    class Busy(PiecewiseStore):
        async def apply(self, operations: Sequence[Operation], budget: Budget = NO_DEADLINE) -> list[Outcome]:
            self.attempted_max += 1
            return await super().apply(operations, budget)

    store = Busy(-3)
    assert await Table(store).one(Get("a")) is None
    assert len(store.calls) == 4


async def test_retries_do_not_repeat_gets_that_were_left_out(store: PiecewiseStore) -> None:
    schedule = RetrySchedule(attempts_max=4)
    outcomes = await Retry(store, read=schedule, write=schedule).apply(gets(3))
    assert outcomes[2] is NOT_READ
    assert isinstance(outcomes[2], TooLarge)
    assert len(store.calls) == 1
