"""A table: operations on one key run in order, and are folded if that is exact. Also deadlines and failures."""

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from contract import COMPOSITE, put, update
from support.scripted import RecordingStore
from tableside.catalog.table import Table
from tableside.core import NOT_READ, values
from tableside.core.budget import NO_DEADLINE, Budget, ValueRoom
from tableside.core.errors import (
    DeadlineExceeded,
    InvalidOperation,
    PreconditionFailed,
    RecordNotFound,
    StoreUnavailable,
    TableError,
)
from tableside.core.operations import Delete, Get, Operation, Outcome, Put, Record, Token, Update, Written
from tableside.core.store import Capabilities, Policy, Scan, TableSpec
from tableside.stores.memory import MemoryStore


class Slow(RecordingStore):
    """A recording store that delays splits too."""

    async def splits(self, count_max: int) -> list[bytes]:
        await asyncio.sleep(self.takes_s([]))
        return await super().splits(count_max)


@pytest.fixture
def store() -> RecordingStore:
    store = Slow()
    store.deaf = True
    return store


@pytest.fixture
def table(store: RecordingStore) -> Table:
    return Table(store)


async def value(table: Table, key: str) -> Any:
    found = await table.one(Get(key))
    assert isinstance(found, Record), found
    return values.decode(found.value)


def ok(outcomes: Sequence[Outcome]) -> list[Written]:
    assert all(isinstance(outcome, Written) for outcome in outcomes), outcomes
    return [outcome for outcome in outcomes if isinstance(outcome, Written)]


def increment(key: str = "a", by: int = 1, default: dict[str, Any] | None = None, **rest: Any) -> Update:
    return update(key, {"$inc": {"n": by}}, {"n": 0} if default is None else default, **rest)


# Order and rounds


async def test_operations_of_one_kind_on_different_keys_share_a_call(table: Table, store: RecordingStore) -> None:
    await table.batch([put("a"), Get("b"), increment("c"), Delete("d"), Get("e"), put("f")])
    assert [[operation.key for operation in call] for call in store.calls] == [["a", "f"], ["b", "e"], ["c"], ["d"]]


# Folding


async def test_updates_of_one_key_are_folded(table: Table, store: RecordingStore) -> None:
    written = ok(await table.batch([increment() for _ in range(200)]))
    assert len(store.calls) == 1
    assert await value(table, "a") == {"n": 200}
    assert [one.created for one in written] == [True] + [False] * 199


async def test_puts_and_gets_of_one_key_are_folded(table: Table, store: RecordingStore) -> None:
    ok(await table.batch([put("a", {"n": index}) for index in range(100)]))
    found = await table.batch([Get("a")] * 100)
    assert len(store.calls) == 2
    assert {type(one) for one in found} == {Record}
    assert await value(table, "a") == {"n": 99}


@pytest.mark.parametrize(
    "make", [lambda index: put("a", {"n": index}), lambda index: increment()], ids=["put", "update"]
)
async def test_the_etag_of_a_folded_version_is_never_valid(table: Table, make: Callable[[int], Operation]) -> None:
    written = ok(await table.batch([make(index) for index in range(5)]))
    etags = [one.etag for one in written]
    assert len(set(etags)) == 5
    for etag in etags[:-1]:
        assert etag
        assert isinstance(await table.one(put("a", {}, if_match=(etag,))), PreconditionFailed)
    assert isinstance(await table.one(put("a", {}, if_match=(etags[-1] or "",))), Written)


async def test_operations_with_individual_outcomes_are_not_folded(table: Table, store: RecordingStore) -> None:
    alone: list[Operation] = [
        increment(),
        increment(returning=True),
        increment(),
        increment(token=Token("w", 1)),
        increment(ttl_s=60),
        put("a", {"n": 1}),
        put("a", {"n": 2}, ttl_s=60),
        put("a", {"n": 3}, returning=True),
        put("a", {"n": 4}, token=Token("w", 2)),
        put("a", {"n": 5}, if_match=("*",)),
        put("a", {"n": 6}, order=2),
        update("a", {"n": 7}, order=1),
        put("a", {"n": 6}),
        increment(if_match=("*",)),
        Delete("a"),
        Delete("a"),
        put("a", {"n": 7}, if_absent=True),
        put("a", {"n": 8}),
    ]
    written = ok(await table.batch(alone))
    assert len(store.calls) == len(alone)
    assert written[1].value == b'{"n":2}'
    assert written[7].value == b'{"n":3}'
    assert written[16].created
    assert not written[17].created
    assert await value(table, "a") == {"n": 8}


async def test_if_a_store_rejects_values_each_folded_write_gets_its_outcome() -> None:
    class Picky(RecordingStore):
        """A store that rejects values whose `n` is 5."""

        @property
        def capabilities(self) -> Capabilities:
            return Capabilities(any_value=False)

        async def apply(self, operations: Sequence[Operation], budget: Budget = NO_DEADLINE) -> list[Outcome]:
            refused = InvalidOperation("the store takes no 5")
            bad = [isinstance(operation, Put) and b":5" in operation.value for operation in operations]
            taken = iter(await super().apply([one for one, is_bad in zip(operations, bad, strict=True) if not is_bad]))
            return [refused if is_bad else next(taken) for is_bad in bad]

    table = Table(Picky())
    outcomes = await table.batch([put("a", {"n": 5}), update("a", {"$unset": ["n"]}), put("a", {"n": 5}), put("a", {})])
    assert [type(outcome) for outcome in outcomes] == [InvalidOperation, RecordNotFound, InvalidOperation, Written]


async def test_an_update_that_contradicts_its_key_fails_alone() -> None:
    table = Table(MemoryStore(TableSpec("t", COMPOSITE)))
    key = ("u", 1)
    await table.one(put(key, {"n": 1}))
    outcomes = await table.batch(
        [update(key, {"user": "v", "m": 1}), update(key, {"user": None, "k": 1}), update(key, {"$inc": {"n": 1}})]
    )
    assert [type(outcome) for outcome in outcomes] == [InvalidOperation, Written, Written]
    found = await table.one(Get(key))
    assert isinstance(found, Record)
    assert values.decode(found.value) == {"n": 2, "k": 1}


async def test_operations_on_different_partitions_are_not_folded(table: Table, store: RecordingStore) -> None:
    """The store is not partitioned and ignores `partitions`: it shows which operations the table sends."""
    first = Get("a", partitions=(0,))
    await table.batch([first, Get("a", partitions=(0,)), Get("a", partitions=(1,)), Get("a")])
    assert store.calls == [[first], [Get("a", partitions=(1,))], [Get("a")]]
    store.calls.clear()
    ok(await table.batch([increment(partitions=(0, 1)), increment(partitions=(0, 1)), increment(partitions=(0,))]))
    assert len(store.calls) == 3
    store.calls.clear()
    ok(await table.batch([increment(partitions=(0,)), increment(partitions=(0,))]))
    assert len(store.calls) == 1


# Effects of a failure


FAILURES = [
    StoreUnavailable("gone", retry_after_s=3.0),
    StoreUnavailable("gone", applied="unknown"),
    TableError("a fault", applied="unknown"),
    InvalidOperation("perhaps", retriable=True),
]


@pytest.mark.parametrize("failure", FAILURES, ids=repr)
async def test_after_a_retriable_failure_later_operations_on_the_key_are_not_attempted(
    table: Table, store: RecordingStore, failure: TableError
) -> None:
    await table.batch([put("a", {"n": 1}), put("b", {"n": 1})])
    store.calls.clear()
    store.fault = lambda operation, call: failure if isinstance(operation, Update) and operation.key == "a" else None
    outcomes = await table.batch(
        [
            put("a", {"n": 5}, ttl_s=60),
            increment("a"),
            Get("a"),
            put("a", {"n": 9}),
            Delete("a"),
            increment("b"),
            Get("b"),
            put("b", {"n": 9}),
        ]
    )
    assert isinstance(outcomes[0], Written)
    assert outcomes[1] is failure
    for held_back in outcomes[2:5]:
        assert type(held_back) is type(failure)
        assert held_back.applied == "no"
        assert held_back.retriable == failure.retriable
        assert held_back.retry_after_s == failure.retry_after_s
        assert "not attempted" in held_back.detail
    assert isinstance(outcomes[5], Written)
    assert isinstance(outcomes[6], Record)
    assert isinstance(outcomes[7], Written)
    assert sum(operation.key == "a" for call in store.calls for operation in call) == 2
    store.fault = lambda operation, call: None
    assert await value(table, "a") == {"n": 6 if failure.applied == "unknown" else 5}
    assert await value(table, "b") == {"n": 9}


async def test_after_a_failed_get_the_next_write_is_not_attempted(table: Table, store: RecordingStore) -> None:
    store.fault = lambda operation, call: StoreUnavailable("gone") if isinstance(operation, Get) else None
    outcomes = await table.batch([Get("a"), Get("a"), put("a")])
    assert [type(outcome) for outcome in outcomes] == [StoreUnavailable] * 3
    store.fault = lambda operation, call: None
    assert await table.one(Get("a")) is None


async def test_folded_operations_share_a_retriable_failure(table: Table, store: RecordingStore) -> None:
    failure = StoreUnavailable("gone", applied="unknown")
    store.fault = lambda operation, call: failure if isinstance(operation, Update) else None
    assert await table.batch([increment(), increment(), increment()]) == [failure] * 3
    assert len(store.calls) == 1


# Deadlines


async def test_unfinished_operations_report_the_deadline(table: Table, store: RecordingStore) -> None:
    store.takes_s = lambda operations: 5
    outcomes = await table.batch([Get("a"), put("b"), increment("c"), Delete("d")], Budget(time.monotonic() + 0.05))
    assert {type(outcome) for outcome in outcomes} == {DeadlineExceeded}
    assert [outcome.applied for outcome in outcomes if isinstance(outcome, TableError)] == ["no"] + ["unknown"] * 3
    assert all(outcome.retriable for outcome in outcomes if isinstance(outcome, TableError))


async def test_after_the_deadline_the_store_is_not_called(table: Table, store: RecordingStore) -> None:
    outcomes = [*await table.batch([Get("a"), put("b")], Budget(0)), await table.one(put("a"), Budget(0))]
    assert [type(outcome) for outcome in outcomes] == [DeadlineExceeded] * 3
    assert [outcome.applied for outcome in outcomes if isinstance(outcome, TableError)] == ["no"] * 3
    assert store.calls == []


async def test_rounds_share_one_deadline(table: Table, store: RecordingStore) -> None:
    store.takes_s = lambda operations: 0.3
    operations: list[Operation] = [
        put("a", {"n": 1}),
        Get("a"),
        put("a", {"n": 2}),
        Get("a"),
        put("b"),
        put("a", {"n": 3}),
    ]
    outcomes = await table.batch(operations, Budget(time.monotonic() + 0.5))
    kinds = [type(outcome) for outcome in outcomes]
    assert kinds == [Written, *[DeadlineExceeded] * 3, Written, DeadlineExceeded]
    assert len(store.calls) == 2
    assert all(outcome.applied == "no" for outcome in outcomes if isinstance(outcome, TableError))


async def test_scans_and_splits_have_a_deadline_too(table: Table, store: RecordingStore) -> None:
    assert (await table.scan(Scan(10))).records == []
    assert len(await table.splits(4)) >= 1
    store.takes_s = lambda operations: 5
    with pytest.raises(DeadlineExceeded):
        await table.scan(Scan(10), Budget(time.monotonic() + 0.05))
    with pytest.raises(DeadlineExceeded):
        await table.splits(4, Budget(time.monotonic() + 0.05))


# Batches of large values: a store reads them in pieces, while the response has room

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
async def piecewise() -> PiecewiseStore:
    piecewise = PiecewiseStore(1000)
    await piecewise.apply([put(f"k{index}", VALUE) for index in range(10)])
    piecewise.attempted_max = 2
    piecewise.calls.clear()
    return piecewise


def gets(count: int) -> list[Operation]:
    return [Get(f"k{index}") for index in range(count)]


async def test_gets_that_a_call_left_out_are_in_the_next_call(piecewise: PiecewiseStore) -> None:
    outcomes = await Table(piecewise).batch(gets(7))
    assert all(isinstance(outcome, Record) for outcome in outcomes)
    assert [len(call) for call in piecewise.calls] == [7, 5, 3, 1]


async def test_gets_beyond_the_room_are_too_large_and_not_sent(piecewise: PiecewiseStore) -> None:
    outcomes = await Table(piecewise).batch(gets(10), Budget(room=ValueRoom(3 * VALUE_BYTES)))
    assert [type(outcome) for outcome in outcomes] == [Record] * 4 + [type(NOT_READ)] * 6
    assert (NOT_READ.code, NOT_READ.retriable, NOT_READ.applied) == ("too_large", True, "no")
    assert [len(call) for call in piecewise.calls] == [10, 1, 1], "as many as fit, and the one that exceeds the room"


async def test_values_are_reduced_before_they_are_counted(piecewise: PiecewiseStore) -> None:
    room = ValueRoom(VALUE_BYTES, lambda: lambda value: b'{"n":1}')
    outcomes = await Table(piecewise).batch(gets(10), Budget(room=room))
    assert [outcome.value for outcome in outcomes if isinstance(outcome, Record)] == [b'{"n":1}'] * 10


async def test_writes_beyond_the_room_are_applied_and_return_no_value(piecewise: PiecewiseStore) -> None:
    updates: list[Operation] = [update(f"k{index}", {"$inc": {"n": 1}}, returning=True) for index in range(6)]
    outcomes = await Table(piecewise).batch(updates, Budget(room=ValueRoom(VALUE_BYTES)))
    values = [outcome.value is not None for outcome in outcomes if isinstance(outcome, Written)]
    assert values == [True, True, False, False, False, False]
    piecewise.attempted_max = 100
    for outcome in await Table(piecewise).batch(gets(6)):
        assert isinstance(outcome, Record)
        assert json.loads(outcome.value)["n"] == 2


async def test_all_rounds_share_the_room_and_a_get_without_room_does_not_block_writes(
    piecewise: PiecewiseStore,
) -> None:
    piecewise.attempted_max = 100
    pair: list[Operation] = [Get("k0"), update("k0", {"$inc": {"n": 1}}, if_match=("*",))]
    outcomes = await Table(piecewise).batch(pair * 4, Budget(room=ValueRoom(1.5 * VALUE_BYTES)))
    assert [type(outcome) for outcome in outcomes[::2]] == [Record, Record, type(NOT_READ), type(NOT_READ)]
    assert all(isinstance(outcome, Written) for outcome in outcomes[1::2])
