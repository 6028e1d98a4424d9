"""Marks on a batch are trusted. Without a mark, the batch is inspected."""

import math
from collections.abc import Sequence

import pyarrow as pa
import pytest
from prometheus_client import CollectorRegistry

from contract import put, update
from support.scripted import Scripted
from tableside.core.columns import GetColumn, RecordColumns
from tableside.core.directions import AllReads, AllSucceeded, all_succeeded, count_reads
from tableside.core.errors import RecordNotFound, Throttled
from tableside.core.operations import Delete, Get, Operation, Outcome, Record, Written
from tableside.core.store import Policy, TableSpec
from tableside.policies import store_metrics
from tableside.policies.rate_limit import CallerLimit, Rate
from tableside.policies.store_metrics import StoreCalls
from tableside.stores.memory import MemoryStore

GETS: list[Operation] = [Get("a"), Get("b")]


class RecordingStore(Policy):
    """A store that records its calls."""

    def __init__(self) -> None:
        super().__init__(Scripted())
        self.asked: list[Sequence[Operation]] = []

    async def apply(self, operations: Sequence[Operation], until: float = math.inf) -> Sequence[Outcome]:
        self.asked.append(operations)
        return await self._inner.apply(operations, until)


@pytest.mark.parametrize(
    ("operations", "count"),
    [([], 0), (GETS, 2), (AllReads(GETS), 2), ([put("a"), Get("b"), Delete("c"), Get("d"), update("e", {})], 2)],
)
def test_reads_are_counted(operations: Sequence[Operation], count: int) -> None:
    assert count_reads(operations) == count


@pytest.mark.parametrize("error", [RecordNotFound("none"), Throttled("slow")])
def test_a_batch_with_an_error_has_not_succeeded(error: Outcome) -> None:
    outcomes: list[Outcome] = [Record(b"{}", "1"), None, Written("2")]
    assert all_succeeded([])
    assert all_succeeded(outcomes)
    assert all_succeeded(AllSucceeded(outcomes))
    assert not all_succeeded([*outcomes, error])


def test_parts_and_concatenations_lose_the_mark() -> None:
    assert type(AllReads(GETS)[:1]) is list
    assert type([*AllSucceeded([None]), Throttled("slow")]) is list


async def test_a_caller_limit_marks_batches_of_reads() -> None:
    seen = RecordingStore()
    limit = CallerLimit(seen, read=Rate(1000), write=Rate(1000))
    await limit.apply(GETS)
    await limit.apply([put("a"), Get("b")])
    assert [type(asked) for asked in seen.asked] == [AllReads, list]
    assert [*seen.asked[0]] == GETS


async def test_store_metrics_mark_successful_outcomes() -> None:
    store = StoreCalls(
        MemoryStore(TableSpec("t")), "memory", metrics=store_metrics.StoreCallMetrics(CollectorRegistry())
    )
    fine = await store.apply([put("a"), Get("b")])
    assert type(fine) is AllSucceeded
    mixed = await store.apply([Get("a"), update("c", {})])
    assert type(mixed) is list
    assert isinstance(mixed[1], RecordNotFound)


async def test_store_metrics_keep_outcomes_in_columns() -> None:
    found = RecordColumns(pa.array([b"{}", None], pa.binary()), pa.array(["1", None], pa.utf8()))

    class Columns(Policy):
        async def apply(self, operations: Sequence[Operation], until: float = math.inf) -> Sequence[Outcome]:
            return found

    metrics = store_metrics.StoreCallMetrics(CollectorRegistry())
    store = StoreCalls(Columns(Scripted()), "memory", metrics=metrics)
    assert await store.apply(GetColumn(pa.array(["a", "b"]))) is found
