"""The store of a partitioned table: routes each operation to the partitions it names, or to the partition of its key.

Each partition is a separate store with separate policies, so a cache never contains records of two partitions.
"""

import asyncio
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import TypeAlias

import msgspec

from ...core import (
    NOT_READ,
    PAGE_SEARCH_S,
    Applied,
    Capabilities,
    DeadlineExceeded,
    Get,
    InvalidOperation,
    Operation,
    Outcome,
    Page,
    PartitionOutcome,
    Scan,
    Store,
    TableError,
    TableSpec,
    Written,
    gather_bounded,
    run_until,
    target_partitions,
    value_bytes,
    without_value,
)
from .combined_outcome import combine_outcomes
from .lazy_store import LazyStore
from .scans import PageBuilder, Position, Split, merged_splits, parse_position, parse_split, split_counts, to_bytes

DEADLINE_GRACE_S = 0.05
"""How long after the deadline to wait for a partition. Shorter than the grace of the table, which ends all of them."""

NEXT_PARTITION_TIMEOUT_S = 1.0
"""How long a page that has records waits for the next partition. A page without records has no such timeout."""

SPLITS_CONCURRENCY_MAX = 8

RETURNED_BYTES_MAX = 2**26
"""After so many bytes of returned values, repeated writes return no value. This is the default limit of a response."""

Placement: TypeAlias = tuple[int, ...] | InvalidOperation
"""The partitions of an operation, or the error if it names invalid ones."""


class PartitionedStore:
    """A store over the stores of its partitions.

    `partitions` are the stores that the backend opened, by index. `with_policies` returns a store that calls them
    through policies.
    """

    def __init__(
        self, spec: TableSpec, partitions: Sequence[LazyStore], outer_stores: Sequence[Store] | None = None
    ) -> None:
        self._requested_spec = spec
        self.partitions = partitions
        self._stores: Sequence[Store] = partitions if outer_stores is None else outer_stores

    def with_policies(self, outer_stores: Sequence[Store]) -> "PartitionedStore":
        """Return the same table with its partitions called through `outer_stores`, one for each by index."""
        return PartitionedStore(self._requested_spec, self.partitions, outer_stores)

    @property
    def spec(self) -> TableSpec:
        """Return the table's spec, with the key schema of the first open partition."""
        key = next((part.spec.key for part in self.partitions if part.is_open), self._requested_spec.key)
        return msgspec.structs.replace(self._requested_spec, key=key, partitions=len(self.partitions))

    @property
    def capabilities(self) -> Capabilities:
        """Return the capabilities that all open partitions share. A scan of several partitions is never sorted."""
        found = [msgspec.structs.asdict(part.capabilities) for part in self.partitions if part.is_open]
        found = found or [msgspec.structs.asdict(Capabilities())]
        common = reduce(lambda one, other: {name: one[name] and other[name] for name in one}, found)
        if len(self.partitions) > 1:
            common |= {"sorted_scan": False, "partition_scan": False}
        return Capabilities(**{**common, "partitions": True})

    async def apply(self, operations: Sequence[Operation], until: float = math.inf) -> list[Outcome]:
        """Apply the operations in their partitions, concurrently."""
        placements = [self._placement(operation) for operation in operations]
        batches = _by_partition(operations, placements)
        coroutines = [self._apply_in(index, batch, until) for index, batch in batches.items()]
        outcomes = await gather_bounded(coroutines, len(self.partitions))
        return _combine(operations, placements, dict(zip(batches, map(iter, outcomes), strict=True)))

    async def scan(self, scan: Scan) -> Page:
        """Read a page from one partition, and continue with the next ones if it has no more records.

        If a partition fails or is slow and the page already has records, the page ends there. The next page then
        starts with that partition and raises its error. A page also ends after PAGE_SEARCH_S.
        """
        count = len(self._stores)
        split = Split(0, count - 1) if scan.split is None else parse_split(scan.split)
        start = Position(split.first) if scan.position is None else parse_position(scan.position)
        selected = range(count) if scan.partitions is None else scan.partitions
        page, ends_at = PageBuilder(scan), math.inf
        for index in (index for index in selected if max(start.partition, split.first) <= index <= split.last):
            inner = start.inner if index == start.partition else None
            if page.full or time.monotonic() >= ends_at:
                return page.build(Position(index))
            ends_at = min(ends_at, time.monotonic() + PAGE_SEARCH_S)
            try:
                async with asyncio.timeout(NEXT_PARTITION_TIMEOUT_S if page.records else None):
                    found = await self._stores[index].scan(page.remaining_scan(split.inner, inner))
            except (TableError, TimeoutError):
                if not page.records:
                    raise
                return page.build(Position(index, inner))
            page.add(found, index)
            if found.position is not None:
                return page.build(Position(index, found.position))
        return page.build(None)

    async def splits(self, count_max: int) -> list[bytes]:
        """Return the splits of every partition. If `count_max` is below the number of partitions, merge partitions."""
        count = len(self._stores)
        if count_max < count:
            return [to_bytes(split) for split in merged_splits(count_max, count)]
        counts = split_counts(count_max, count)
        coroutines = [store.splits(part_max) for store, part_max in zip(self._stores, counts, strict=True)]
        found = await gather_bounded(coroutines, SPLITS_CONCURRENCY_MAX)
        return [to_bytes(Split(index, index, inner)) for index, inners in enumerate(found) for inner in inners]

    def _placement(self, operation: Operation) -> Placement:
        try:
            return target_partitions(operation, len(self._stores))
        except InvalidOperation as error:
            return error

    async def _apply_in(self, index: int, operations: Sequence[Operation], until: float) -> Sequence[Outcome]:
        """Apply operations in one partition. Repeat the writes that it has not attempted.

        The outcomes of the other partitions are final, so the table cannot send such a write again.
        """
        outcomes = await self._call(index, operations, until)
        while waiting := [at for at in range(len(outcomes)) if _is_unsent_write(operations[at], outcomes[at])]:
            full = value_bytes(outcomes) > RETURNED_BYTES_MAX
            repeated = [without_value(operations[at]) if full else operations[at] for at in waiting]
            outcomes = list(outcomes)
            for at, outcome in zip(waiting, await self._call(index, repeated, until), strict=True):
                outcomes[at] = outcome
        return outcomes

    async def _call(self, index: int, operations: Sequence[Operation], until: float) -> Sequence[Outcome]:
        """Call the store of a partition. End after the deadline, so that the outcomes of the others are kept."""
        coroutine = self._stores[index].apply(operations, until)
        if until == math.inf:
            return await coroutine
        try:
            return await run_until(coroutine, until + DEADLINE_GRACE_S)
        except TimeoutError:
            return [self._deadline_exceeded(operation) for operation in operations]

    def _deadline_exceeded(self, operation: Operation) -> DeadlineExceeded:
        applied: Applied = "no" if isinstance(operation, Get) else "unknown"
        return DeadlineExceeded(f"table {self._requested_spec.name!r}: the deadline passed", applied=applied)


def _is_unsent_write(operation: Operation, outcome: Outcome) -> bool:
    return outcome is NOT_READ and not isinstance(operation, Get)


def _by_partition(operations: Sequence[Operation], placements: Sequence[Placement]) -> dict[int, list[Operation]]:
    batches: dict[int, list[Operation]] = {}
    for operation, placement in zip(operations, placements, strict=True):
        if isinstance(placement, tuple):
            for index in placement:
                batches.setdefault(index, []).append(operation)
    return batches


def _combine(
    operations: Sequence[Operation], placements: Sequence[Placement], by_partition: Mapping[int, Iterator[Outcome]]
) -> list[Outcome]:
    """Return one outcome for each operation. Each partition's outcomes are in the order of its operations."""
    outcomes: list[Outcome] = []
    for operation, placement in zip(operations, placements, strict=True):
        if isinstance(placement, InvalidOperation):
            outcomes.append(placement)
        elif isinstance(operation, Get):
            outcomes.append(next(by_partition[placement[0]]))
        else:
            outcomes.append(combine_outcomes(tuple(_placed(index, next(by_partition[index])) for index in placement)))
    return outcomes


def _placed(index: int, outcome: Outcome) -> PartitionOutcome:
    assert isinstance(outcome, (Written, TableError))
    return PartitionOutcome(index, outcome)
