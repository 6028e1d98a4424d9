"""The shared suite on a table over several stores, and tests of routing and of an unavailable partition."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from contract import Basics, Preconditions, Scans, StoreContract, Time, one, put, update, value
from support.scripted import Scripted
from tableside.core.backend import Backend
from tableside.core.budget import Budget
from tableside.core.errors import DeadlineExceeded, PreconditionFailed, StoreUnavailable, TableError, Unsupported
from tableside.core.keys import KeyField, KeySchema
from tableside.core.operations import Delete, Get, Outcome, PartitionOutcome, Write, Written
from tableside.core.store import Scan, Store, TableSpec
from tableside.stores.memory import MemoryBackend, MemoryStore
from tableside.stores.partitioned import PartitionedBackend, PartitionedSettings, PartitionedStore, combine_outcomes
from tableside.stores.rocksdb import RocksdbBackend, RocksdbSettings

EVERY = (0, 1, 2)


class TestPartitioned(StoreContract):
    partitions_are_sorted = False

    @asynccontextmanager
    async def opened(self, spec: TableSpec, time: Time, directory: Path) -> AsyncIterator[Store]:
        rocksdb = await RocksdbBackend.open(RocksdbSettings(path=str(directory / "data")), time.now_ms)
        yield await composed(MemoryBackend(time.now_ms), rocksdb).store(spec)
        await rocksdb.close()


class TestOnePartition(Basics, Preconditions, Scans):
    @asynccontextmanager
    async def opened(self, spec: TableSpec, time: Time, directory: Path) -> AsyncIterator[Store]:
        yield await composed(MemoryBackend(time.now_ms)).store(spec)


def composed(*backends: Backend) -> PartitionedBackend:
    named = {f"part-{index}": backend for index, backend in enumerate(backends)}
    backend = PartitionedBackend(PartitionedSettings(partitions=tuple(named)))
    backend.compose(named)
    return backend


class UnavailableBackend(MemoryBackend):
    """A backend that is unavailable until it wakes, or never responds."""

    def __init__(self, *, answers: bool = True, awake: bool = False) -> None:
        super().__init__()
        self.awake = awake
        self.answers = answers

    async def store(self, spec: TableSpec) -> MemoryStore:
        if not self.answers:
            await asyncio.sleep(math.inf)
        if not self.awake:
            raise StoreUnavailable("asleep")
        return await super().store(spec)

    async def ping(self) -> None:
        if not self.awake:
            raise StoreUnavailable("asleep")

    async def tables(self) -> list[str]:
        await self.ping()
        return await super().tables()


async def three() -> tuple[PartitionedStore, list[MemoryBackend]]:
    backends = [MemoryBackend() for _ in EVERY]
    return await composed(*backends).store(TableSpec("t")), backends


async def values_in(backends: Sequence[MemoryBackend], key: str = "a") -> list[Any]:
    stores = [await backend.store(TableSpec("t")) for backend in backends]
    return [await value(store, key) if await one(store, Get(key)) else None for store in stores]


def parts(outcome: Outcome) -> dict[int, Any]:
    assert isinstance(outcome, (Written, TableError))
    assert outcome.partitions is not None
    return {part.partition: part.outcome for part in outcome.partitions}


# Outcomes


@pytest.mark.parametrize(
    ("outcomes", "retriable", "applied", "retry_after_s"),
    [
        ([StoreUnavailable("x"), StoreUnavailable("y", retry_after_s=7)], True, "no", 7),
        ([StoreUnavailable("x"), PreconditionFailed("y")], False, "no", None),
        ([Written("e", replayed=True), DeadlineExceeded("y")], True, "unknown", None),
    ],
    ids=repr,
)
def test_the_whole_of_several_with_failures(
    outcomes: list[Written | TableError], retriable: bool, applied: str, retry_after_s: float | None
) -> None:
    placed = tuple(PartitionOutcome(index, outcome) for index, outcome in enumerate(outcomes))
    found = combine_outcomes(placed)
    first = next(outcome for outcome in outcomes if isinstance(outcome, TableError))
    assert type(found) is type(first)
    assert isinstance(found, TableError)
    assert (found.retriable, found.applied, found.retry_after_s) == (retriable, applied, retry_after_s)
    assert found.partitions == placed
    assert first.partitions is None, "the outcome of one partition is left as it is"


@pytest.mark.parametrize("kind", ["put", "update", "delete"])
async def test_a_write_is_superseded_where_every_partition_says_so(kind: str) -> None:
    store, backends = await three()
    older: dict[str, Write] = {
        "put": put("a", {"n": 4}, order=4),
        "update": update("a", {"n": 4}, order=4),
        "delete": Delete("a", order=4),
    }
    asked = msgspec.structs.replace(older[kind], partitions=EVERY)
    await one(store, put("a", {"n": 5}, order=5, partitions=(0,)))
    told = await one(store, asked)
    assert [parts(told)[index].superseded for index in EVERY] == [True, False, False]
    assert isinstance(told, Written)
    assert not told.superseded
    left = None if kind == "delete" else {"n": 4}
    assert await values_in(backends) == [{"n": 5}, left, left]
    await one(store, put("a", {"n": 6}, order=6, partitions=EVERY))
    last = await one(store, asked)
    assert isinstance(last, Written)
    assert last.superseded
    assert await values_in(backends) == [{"n": 6}] * 3


async def test_a_slow_partition_hides_no_outcome_of_the_others() -> None:
    store, backends = await three()
    watched = [Scripted(part) for part in store.partitions]
    watched[1].takes_s, watched[1].deaf = lambda operations: 60, True
    slow = store.with_policies(watched)
    [put_in_all] = await slow.apply([put("a", {"n": 1}, partitions=EVERY)], Budget(time.monotonic() + 0.2))
    [read] = await slow.apply([Get("b", partitions=(1,))], Budget(time.monotonic() + 0.2))
    told = parts(put_in_all)
    assert isinstance(told[1], DeadlineExceeded)
    assert told[1].applied == "unknown"
    assert [type(told[index]) for index in (0, 2)] == [Written, Written]
    assert isinstance(read, DeadlineExceeded)
    assert read.applied == "no"
    assert await values_in(backends) == [{"n": 1}, None, {"n": 1}]


# Scans and splits


async def test_a_page_ends_before_an_unavailable_partition_and_the_next_one_fails() -> None:
    sleeping = UnavailableBackend()
    store = await composed(MemoryBackend(), sleeping).store(TableSpec("t"))
    await one(store, put("a", {}, partitions=(0,)))
    page = await store.scan(Scan(100))
    assert page.partitions == [0]
    assert page.position is not None
    with pytest.raises(StoreUnavailable):
        await store.scan(Scan(100, position=page.position))
    sleeping.awake = True
    rest = await store.scan(Scan(100, position=page.position))
    assert (rest.records, rest.position) == ([], None)


# Opening


async def test_an_unavailable_partition_does_not_affect_others_and_opens_on_recovery() -> None:
    sleeping = UnavailableBackend()
    store = await composed(MemoryBackend(), sleeping).store(TableSpec("t"))
    [here, away, both] = await store.apply(
        [put("a", partitions=(0,)), Get("b", partitions=(1,)), put("c", partitions=(0, 1))]
    )
    assert isinstance(here, Written)
    assert isinstance(away, StoreUnavailable)
    assert isinstance(both, StoreUnavailable)
    assert isinstance(parts(both)[0], Written)
    sleeping.awake = True
    assert isinstance(await one(store, put("c", partitions=(0, 1))), Written)


async def test_a_table_without_available_partitions_is_unavailable() -> None:
    with pytest.raises(StoreUnavailable, match="partition 0, in store 'part-0': asleep"):
        await composed(UnavailableBackend(), UnavailableBackend()).store(TableSpec("t"))


async def test_a_hung_partition_does_not_delay_the_others() -> None:
    store = await composed(MemoryBackend(), UnavailableBackend(answers=False)).store(TableSpec("t"))
    assert isinstance(await one(store, put("a", partitions=(0,))), Written)
    until = asyncio.get_running_loop().time() + 0.1
    [outcome] = await store.apply([Get("a", partitions=(1,))], Budget(until))
    # On a busy machine the table's grace may end before the partition has noticed the deadline.
    assert isinstance(outcome, StoreUnavailable | DeadlineExceeded)


class IntegerKeyBackend(MemoryBackend):
    """A backend whose tables have an integer key."""

    async def store(self, spec: TableSpec) -> MemoryStore:
        return await super().store(TableSpec(spec.name, KeySchema((KeyField("id", "integer"),))))


async def test_partitions_with_different_keys_are_rejected() -> None:
    with pytest.raises(Unsupported, match=r"partition 1, in store 'part-1': partitions: the table's key"):
        await composed(IntegerKeyBackend(), MemoryBackend()).store(TableSpec("t"))
    found = await composed(IntegerKeyBackend(), IntegerKeyBackend()).store(TableSpec("t"))
    assert found.spec.key.fields == (KeyField("id", "integer"),)


async def test_it_is_reachable_if_all_partitions_are_and_names_others() -> None:
    sleeping = UnavailableBackend()
    backend = composed(MemoryBackend(), sleeping)
    with pytest.raises(StoreUnavailable, match=r"cannot be reached: partition 1 in 'part-1' \(asleep\)"):
        await backend.ping()
    sleeping.awake = True
    await backend.ping()
