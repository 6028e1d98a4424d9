"""Compare-and-set over an exchange that lets other tasks run in between: no write is lost, and it ends in time."""

import asyncio
import itertools
import math
from collections.abc import Sequence
from typing import Any

import pytest

from contract import put, same, update
from tableside.core import compare_and_set, updates, values
from tableside.core.compare_and_set import CompareAndSet, Replacement, VersionedRecord, VersionedRecords
from tableside.core.errors import Contended, DeadlineExceeded, RecordUnreadable, StoreUnavailable, TableError
from tableside.core.operations import Delete, Get, Key, Outcome, Put, Update, Write, Written
from tableside.core.store import TableSpec
from tableside.core.transitions import Stored, transition


class Dictionary(VersionedRecords):
    """Records in a dictionary with a simulated latency."""

    def __init__(self) -> None:
        self.records: dict[Key, Stored | RecordUnreadable] = {}
        self.reads = self.replacements = self.lost = 0
        self.intruders: list[Stored] = []
        self.refusal: TableError | None = None

    async def read(self, writes: Sequence[Write], until: float) -> list[VersionedRecord | TableError]:
        self.reads += 1
        keys = [write.key for write in writes]
        await asyncio.sleep(0)
        found = [VersionedRecord(self.records.get(key), self.records.get(key)) for key in keys]
        await asyncio.sleep(0)
        if self.intruders:
            self.records[keys[0]] = self.intruders.pop()
        return [*found]

    async def replace(self, steps: Sequence[Replacement], until: float) -> list[Outcome | bool]:
        self.replacements += 1
        await asyncio.sleep(0)
        return [self.refusal or self._replaced(step) for step in steps]

    def _replaced(self, step: Replacement) -> bool:
        key = step.write.key
        if self.records.get(key) is not step.version:
            self.lost += 1
            return False
        if step.changed.stored is None:
            self.records.pop(key, None)
        else:
            self.records[key] = step.changed.stored
        return True


SPEC = TableSpec("t")


@pytest.fixture
def dictionary() -> Dictionary:
    return Dictionary()


@pytest.fixture
def writes(dictionary: Dictionary) -> CompareAndSet:
    versions = itertools.count()
    return CompareAndSet(SPEC, dictionary, etag=lambda: f"v{next(versions)}", jitter=lambda: 0.0)


def increment(key: str = "a") -> Update:
    return update(key, {"$inc": {"n": 1}}, {"n": 0})


def value(dictionary: Dictionary, key: str = "a") -> object:
    stored = dictionary.records[key]
    assert isinstance(stored, Stored)
    assert stored.value is not None
    return values.decode(stored.value)


async def test_local_writers_of_one_record_conflict_at_most_once_each(
    writes: CompareAndSet, dictionary: Dictionary
) -> None:
    outcomes = await asyncio.gather(*(writes.apply([increment()], math.inf) for _ in range(64)))
    assert same(value(dictionary), {"n": 64})
    assert sum(outcome.created for [outcome] in outcomes if isinstance(outcome, Written)) == 1
    assert dictionary.lost <= 64


async def test_it_gives_up_after_repeated_conflicts(writes: CompareAndSet, dictionary: Dictionary) -> None:
    dictionary.intruders = [Stored(b"{}", f"theirs {index}") for index in range(1000)]
    [outcome] = await writes.apply([increment()], math.inf)
    assert isinstance(outcome, Contended)
    assert (outcome.applied, outcome.retriable) == ("no", True)
    assert dictionary.reads <= compare_and_set.ATTEMPTS_MAX + 1


async def test_a_rejection_of_the_store_is_not_retried(writes: CompareAndSet, dictionary: Dictionary) -> None:
    dictionary.refusal = StoreUnavailable("gone", applied="unknown")
    assert await writes.apply([increment()], math.inf) == [dictionary.refusal]
    assert dictionary.replacements == 1


async def test_an_unreadable_record_can_be_put_or_deleted(writes: CompareAndSet, dictionary: Dictionary) -> None:
    broken = RecordUnreadable("not ours")
    dictionary.records = dict.fromkeys("abcd", broken)
    batch: list[Write] = [
        put("a", {"n": 1}),
        Delete("b"),
        update("c", {"n": 1}, {}),
        put("d", {"n": 1}, if_absent=True),
    ]
    outcomes = await writes.apply(batch, math.inf)
    assert [type(outcome) for outcome in outcomes] == [Written, Written, RecordUnreadable, RecordUnreadable]
    assert same(value(dictionary), {"n": 1})
    assert dictionary.records.keys() == {"a", "c", "d"}


async def test_no_write_is_decided_after_the_deadline(dictionary: Dictionary, writes: CompareAndSet) -> None:
    until = asyncio.get_running_loop().time()
    outcomes = await writes.apply([put(str(number), {"n": 1}) for number in range(3)], until)
    assert [(type(outcome), getattr(outcome, "applied", None)) for outcome in outcomes] == [
        (DeadlineExceeded, "no")
    ] * 3
    assert not dictionary.replacements
    assert not dictionary.records


def watched(kind: Any, read: set[str]) -> Any:
    """Return a class of writes that adds the members that are read to `read`."""

    class Watched(kind, frozen=True):  # type: ignore[call-arg,misc]  # msgspec
        def __getattribute__(self, name: str) -> Any:
            read.add(name)
            return kind.__getattribute__(self, name)

    return Watched


@pytest.mark.parametrize(
    ("kind", "members"),
    [(Put, {"value": b"{}"}), (Update, {"changes": updates.parse({}), "default": b"{}"}), (Delete, {})],
)
def test_a_decision_depends_on_every_member_of_a_write(kind: Any, members: dict[str, Any]) -> None:
    """Stores and policies leave writes with members that they do not know to the general way."""
    read = set[str]()
    for stored in (None, Stored(b"{}", "0")):
        transition(stored, watched(kind, read)("a", **members), SPEC, now_ms=1, etag="1")
    assert {*kind.__struct_fields__} - read <= {"key", "partitions"}


def test_gets_have_no_member_that_a_store_would_ignore() -> None:
    """Stores read only their keys, caches the maximum age, and partitioned tables the partitions."""
    assert Get.__struct_fields__ == ("key", "max_age_s", "partitions")
