"""The records of one table in several partitions: each operation goes to those that it names, or to the one of its key.

The parts are stores of their own, with policies around each, so no cache sees two partitions.
"""

import asyncio
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import TypeAlias

import msgspec

from ...core import (
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
)
from .combined_outcome import whole
from .lazy_store import Opening
from .scans import Filled, Position, Split, encoded, position, runs, shares, split

GRACE_S = 0.05
"""How long after the deadline a partition is still waited for: less than the table is, which ends all at once."""

MORE_WITHIN_S = 1.0
"""How long a page that has records waits for those of another partition; the next page waits as long as it may."""

SPLIT_AT_ONCE = 8

Place: TypeAlias = tuple[int, ...] | InvalidOperation
"""The partitions of an operation, or why it cannot go there."""


class PartitionedStore:
    """A store over the stores of its partitions, by their index."""

    def __init__(self, spec: TableSpec, parts: Sequence[Opening], around: Sequence[Store] | None = None) -> None:
        self._asked = spec
        self.openings = parts
        self._parts: Sequence[Store] = parts if around is None else around

    def through(self, around: Sequence[Store]) -> "PartitionedStore":
        """Return the same table, whose partitions are asked through stores around them."""
        return PartitionedStore(self._asked, self.openings, around)

    @property
    def spec(self) -> TableSpec:
        """Return what the table is, its key as the first partition that is open has it."""
        key = next((part.spec.key for part in self.openings if part.is_open), self._asked.key)
        return msgspec.structs.replace(self._asked, key=key, partitions=len(self.openings))

    @property
    def capabilities(self) -> Capabilities:
        """Return what all partitions can do; several are never read in the order of their keys."""
        found = [msgspec.structs.asdict(part.capabilities) for part in self.openings if part.is_open]
        found = found or [msgspec.structs.asdict(Capabilities())]
        common = reduce(lambda one, other: {name: one[name] and other[name] for name in one}, found)
        several = len(self.openings) > 1
        return Capabilities(**{**common, "sorted_scan": common["sorted_scan"] and not several, "partitions": True})

    async def apply(self, operations: Sequence[Operation], until: float = math.inf) -> list[Outcome]:
        """Do the operations in their partitions, side by side."""
        places = [self._placed(operation) for operation in operations]
        asked = _by_partition(operations, places)
        works = [self._apply_in(index, some, until) for index, some in asked.items()]
        answers = await gather_bounded(works, len(self.openings))
        return _assembled(operations, places, dict(zip(asked, map(iter, answers), strict=True)))

    async def scan(self, scan: Scan) -> Page:
        """Read a page: of one partition, and once that has no more, of those that follow.

        What cannot be read, or not soon, ends a page that has records already; the next one says why.
        """
        count = len(self._parts)
        part = Split(0, count - 1) if scan.split is None else split(scan.split)
        at = Position(part.first) if scan.position is None else position(scan.position)
        wanted = range(count) if scan.partitions is None else scan.partitions
        filled = Filled(scan)
        for index in (index for index in wanted if max(at.partition, part.first) <= index <= part.last):
            inner = at.inner if index == at.partition else None
            if filled.full:
                return filled.page(Position(index))
            try:
                async with asyncio.timeout(MORE_WITHIN_S if filled.records else None):
                    page = await self._parts[index].scan(filled.rest(part.inner, inner))
            except (TableError, TimeoutError):
                if not filled.records:
                    raise
                return filled.page(Position(index, inner))
            filled.add(page, index)
            if page.position is not None:
                return filled.page(Position(index, page.position))
        return filled.page(None)

    async def splits(self, count_max: int) -> list[bytes]:
        """Return the splits of every partition; with fewer than there are partitions, some of these together."""
        count = len(self._parts)
        if count_max < count:
            return [encoded(run) for run in runs(count_max, count)]
        works = [part.splits(most) for part, most in zip(self._parts, shares(count_max, count), strict=True)]
        found = await gather_bounded(works, SPLIT_AT_ONCE)
        return [encoded(Split(index, index, inner)) for index, inners in enumerate(found) for inner in inners]

    def _placed(self, operation: Operation) -> Place:
        try:
            return target_partitions(operation, len(self._parts))
        except InvalidOperation as error:
            return error

    async def _apply_in(self, index: int, operations: Sequence[Operation], until: float) -> list[Outcome]:
        """Ask one partition; one that does not end in time must not hide what became of the others."""
        work = self._parts[index].apply(operations, until)
        if until == math.inf:
            return await work
        try:
            return await run_until(work, until + GRACE_S)
        except TimeoutError:
            return [self._too_late(operation) for operation in operations]

    def _too_late(self, operation: Operation) -> DeadlineExceeded:
        applied: Applied = "no" if isinstance(operation, Get) else "unknown"
        return DeadlineExceeded(f"table {self._asked.name!r}: the deadline was over", applied=applied)


def _by_partition(operations: Sequence[Operation], places: Sequence[Place]) -> dict[int, list[Operation]]:
    asked: dict[int, list[Operation]] = {}
    for operation, place in zip(operations, places, strict=True):
        if isinstance(place, tuple):
            for index in place:
                asked.setdefault(index, []).append(operation)
    return asked


def _assembled(
    operations: Sequence[Operation], places: Sequence[Place], answers: Mapping[int, Iterator[Outcome]]
) -> list[Outcome]:
    """Return an outcome for each operation; every partition's answers come in the order of what it was asked."""
    outcomes: list[Outcome] = []
    for operation, place in zip(operations, places, strict=True):
        if isinstance(place, InvalidOperation):
            outcomes.append(place)
        elif isinstance(operation, Get):
            outcomes.append(next(answers[place[0]]))
        else:
            outcomes.append(whole(tuple(_of_write(index, next(answers[index])) for index in place)))
    return outcomes


def _of_write(index: int, outcome: Outcome) -> PartitionOutcome:
    assert isinstance(outcome, (Written, TableError))
    return PartitionOutcome(index, outcome)
