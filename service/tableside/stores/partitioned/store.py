"""The store of a partitioned table: routes each operation to the partitions it names, or to the partition of its key.

Each partition is a separate store with separate policies, so a cache never contains records of two partitions. It is
opened by its first operation, because an unavailable partition must not block the others.
"""

import asyncio
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from functools import reduce
from itertools import pairwise
from typing import TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from ...core import (
    NO_DEADLINE,
    NOT_READ,
    PAGE_SEARCH_S,
    Backend,
    Budget,
    Capabilities,
    Get,
    InvalidOperation,
    Key,
    MalformedRequest,
    Operation,
    Outcome,
    Page,
    PartitionOutcome,
    Record,
    Scan,
    Store,
    StoreUnavailable,
    TableError,
    TableSpec,
    Unsupported,
    Written,
    gather_bounded,
    run_until,
    target_partitions,
    value_bytes,
    without_value,
)

DEADLINE_GRACE_S = 0.05
"""How long after the deadline to wait for a partition. Shorter than the grace of the table, which ends all of them."""

NEXT_PARTITION_TIMEOUT_S = 1.0
"""How long a page that has records waits for the next partition. A page without records has no such timeout."""

SPLITS_CONCURRENCY_MAX = 8

RETURNED_BYTES_MAX = 2**26
"""After so many bytes of returned values, repeated writes return no value. This is the default limit of a response."""

Placement: TypeAlias = tuple[int, ...] | InvalidOperation
"""The partitions of an operation, or the error if it names invalid ones."""

Encoded = TypeVar("Encoded", "Position", "Split")


class Position(msgspec.Struct, frozen=True, array_like=True):
    """Where a scan continues: the partition, and the position within it. None is the partition's start."""

    partition: int
    inner: bytes | None = None


class Split(msgspec.Struct, frozen=True, array_like=True):
    """The partitions from `first` to `last`, both included. `inner` is a split of a single partition."""

    first: int
    last: int
    inner: bytes | None = None


class PartitionedStore:
    """A store over the stores of its partitions.

    `partitions` are the stores that the backend opened, by index. `with_policies` returns a store that calls them
    through policies.
    """

    def __init__(
        self, spec: TableSpec, partitions: Sequence["LazyStore"], outer_stores: Sequence[Store] | None = None
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
        return replace(self._requested_spec, key=key, partitions=len(self.partitions))

    @property
    def capabilities(self) -> Capabilities:
        """Return the capabilities that all open partitions share. A scan of several partitions is never sorted."""
        found = [msgspec.structs.asdict(part.capabilities) for part in self.partitions if part.is_open]
        found = found or [msgspec.structs.asdict(Capabilities())]
        common = reduce(lambda one, other: {name: one[name] and other[name] for name in one}, found)
        if len(self.partitions) > 1:
            common |= {"sorted_scan": False, "partition_scan": False}
        return Capabilities(**{**common, "partitions": True})

    async def apply(self, operations: Sequence[Operation], budget: Budget = NO_DEADLINE) -> list[Outcome]:
        """Apply the operations in their partitions, concurrently."""
        placements = [self._placement(operation) for operation in operations]
        batches = _by_partition(operations, placements)
        coroutines = [self._apply_in(index, batch, budget) for index, batch in batches.items()]
        outcomes = await gather_bounded(coroutines, len(self.partitions))
        return _combine(operations, placements, dict(zip(batches, map(iter, outcomes), strict=True)))

    async def scan(self, scan: Scan) -> Page:
        """Read a page from one partition, and continue with the next ones if it has no more records.

        If a partition fails or is slow and the page already has records, the page ends there. The next page then
        starts with that partition and raises its error. A page also ends after PAGE_SEARCH_S.
        """
        count = len(self._stores)
        split = Split(0, count - 1) if scan.split is None else _decoded(scan.split, Split, "split")
        start = Position(split.first) if scan.position is None else _decoded(scan.position, Position, "cursor")
        selected = range(count) if scan.partitions is None else scan.partitions
        page, ends_at = _PartialPage(), math.inf
        for index in (index for index in selected if max(start.partition, split.first) <= index <= split.last):
            inner = start.inner if index == start.partition else None
            rest = replace(
                scan,
                limit=scan.limit - len(page.records),
                bytes_max=scan.bytes_max - page.size_bytes,
                split=split.inner,
                position=inner,
                partitions=None,
            )
            if rest.limit <= 0 or rest.bytes_max < 0 or time.monotonic() >= ends_at:
                return page.ended(Position(index))
            ends_at = min(ends_at, time.monotonic() + PAGE_SEARCH_S)
            try:
                async with asyncio.timeout(NEXT_PARTITION_TIMEOUT_S if page.records else None):
                    found = await self._stores[index].scan(rest)
            except (TableError, TimeoutError):
                if not page.records:
                    raise
                return page.ended(Position(index, inner))
            page.add(found, index)
            if found.position is not None:
                return page.ended(Position(index, found.position))
        return page.ended(None)

    async def splits(self, count_max: int) -> list[bytes]:
        """Return the splits of every partition. If `count_max` is below the number of partitions, merge partitions."""
        count = len(self._stores)
        if count_max < count:
            bounds = [count * index // count_max for index in range(count_max + 1)]
            return [msgspec.msgpack.encode(Split(low, high - 1)) for low, high in pairwise(bounds)]
        each, more = divmod(count_max, count)
        coroutines = [store.splits(each + (index < more)) for index, store in enumerate(self._stores)]
        found = await gather_bounded(coroutines, SPLITS_CONCURRENCY_MAX)
        splits = [Split(index, index, inner) for index, inners in enumerate(found) for inner in inners]
        return [msgspec.msgpack.encode(split) for split in splits]

    def _placement(self, operation: Operation) -> Placement:
        try:
            return target_partitions(operation, len(self._stores))
        except InvalidOperation as error:
            return error

    async def _apply_in(self, index: int, operations: Sequence[Operation], budget: Budget) -> Sequence[Outcome]:
        """Apply operations in one partition. Repeat the writes that it has not attempted.

        The outcomes of the other partitions are final, so the table cannot send such a write again.
        """
        outcomes = await self._call(index, operations, budget)
        while waiting := [
            at for at, outcome in enumerate(outcomes) if outcome is NOT_READ and not isinstance(operations[at], Get)
        ]:
            full = value_bytes(outcomes) > RETURNED_BYTES_MAX
            repeated = [without_value(operations[at]) if full else operations[at] for at in waiting]
            outcomes = list(outcomes)
            for at, outcome in zip(waiting, await self._call(index, repeated, budget), strict=True):
                outcomes[at] = outcome
        return outcomes

    async def _call(self, index: int, operations: Sequence[Operation], budget: Budget) -> Sequence[Outcome]:
        """Call the store of a partition. End after the deadline, so that the outcomes of the others are kept."""
        try:
            return await run_until(self._stores[index].apply(operations, budget), budget.until + DEADLINE_GRACE_S)
        except TimeoutError:
            return budget.unanswered(operations)


class LazyStore:
    """A table's records in one backend, which may be unavailable at first.

    `siblings` are the stores of all partitions of the table, including this one. Their keys must have one schema.
    """

    def __init__(self, backend: Backend, spec: TableSpec, siblings: Sequence["LazyStore"] = ()) -> None:
        self._backend = backend
        self._requested_spec = spec
        self._siblings = siblings
        self._store: Store | None = None
        self._lock = asyncio.Lock()

    @property
    def is_open(self) -> bool:
        """Whether the backend has opened the table."""
        return self._store is not None

    @property
    def spec(self) -> TableSpec:
        """Return the table's spec, or the requested one before the store is open."""
        return self._requested_spec if self._store is None else self._store.spec

    @property
    def capabilities(self) -> Capabilities:
        """Return the store's capabilities, or the defaults before it is open."""
        return Capabilities() if self._store is None else self._store.capabilities

    async def ensure_open(self, budget: Budget = NO_DEADLINE) -> Store:
        """Return the store, and open it first if necessary.

        Raise the errors of `Backend.store`. Raise StoreUnavailable if the store is not open at the deadline, and
        Unsupported if it does not fit the table or the other partitions.
        """
        if self._store is None:
            try:
                async with budget.timeout(), self._lock:
                    if self._store is None:
                        self._store = self._checked(await self._backend.store(self._requested_spec))
            except TimeoutError:
                raise StoreUnavailable(f"table {self._requested_spec.name!r}: its store does not respond") from None
        return self._store

    async def apply(self, operations: Sequence[Operation], budget: Budget = NO_DEADLINE) -> Sequence[Outcome]:
        """Apply the operations. If the store cannot be opened, its error is the outcome of each operation."""
        store = self._store
        if store is None:
            try:
                store = await self.ensure_open(budget)
            except TableError as error:
                return [error] * len(operations)
        return await store.apply(operations, budget)

    async def scan(self, scan: Scan) -> Page:
        """Read a page of records. Raise a TableError if it cannot be read."""
        return await (await self.ensure_open()).scan(scan)

    async def splits(self, count_max: int) -> list[bytes]:
        """Return disjoint parts that together cover the partition."""
        return await (await self.ensure_open()).splits(count_max)

    def _checked(self, store: Store) -> Store:
        if store.spec.ttl_s is not None and not store.capabilities.ttl:
            raise Unsupported("ttl: its store keeps no expiry for this table, and ttl_s is set")
        if any(other.is_open and other.spec.key != store.spec.key for other in self._siblings):
            raise Unsupported("partitions: the table's key in this store differs from its key in the other partitions")
        return store


class _PartialPage:
    """The records of several partitions that one page of a scan has so far."""

    def __init__(self) -> None:
        self.records: list[tuple[Key, Record]] = []
        self.size_bytes = 0
        self._partitions: list[int] = []

    def add(self, page: Page, partition: int) -> None:
        self.records += page.records
        self._partitions += [partition] * len(page.records)
        self.size_bytes += page.size_bytes

    def ended(self, next_position: Position | None) -> Page:
        position = None if next_position is None else msgspec.msgpack.encode(next_position)
        return Page(self.records, position, self._partitions or None)


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


def combine_outcomes(placed: tuple[PartitionOutcome, ...]) -> Written | TableError:
    """Return a success if every partition succeeded, else the first failure by index with the number of failures.

    The result lists the outcome of each partition. The outcome of a single partition is otherwise unchanged, as in a
    table without partitions. A write to no partition succeeds and changes nothing.
    """
    written = [one.outcome for one in placed if isinstance(one.outcome, Written)]
    if len(written) < len(placed):
        return _combined_failure(placed)
    if len(written) == 1:
        return replace(written[0], partitions=placed)
    return Written(
        None,
        created=bool(written) and all(outcome.created for outcome in written),
        replayed=bool(written) and all(outcome.replayed for outcome in written),
        partitions=placed,
    )


def _combined_failure(placed: tuple[PartitionOutcome, ...]) -> TableError:
    errors = {one.partition: one.outcome for one in placed if isinstance(one.outcome, TableError)}
    first = next(iter(errors.values()))
    combined = copy(first)
    combined.partitions = placed
    if len(placed) > 1:
        indexes = ", ".join(map(str, errors))
        combined.detail = (
            f"{len(errors)} of {len(placed)} partitions failed ({indexes}); the first error: {first.detail}"
        )
        combined.args = (combined.detail,)
        combined.retriable = all(error.retriable for error in errors.values())
        not_applied = len(errors) == len(placed) and all(error.applied == "no" for error in errors.values())
        combined.applied = "no" if not_applied else "unknown"
        waits_s = [error.retry_after_s for error in errors.values() if error.retry_after_s is not None]
        combined.retry_after_s = max(waits_s, default=None) if combined.retriable else None
    return combined


def _decoded(raw: bytes, kind: type[Encoded], word: str) -> Encoded:
    try:
        return msgspec.msgpack.decode(raw, type=kind)
    except msgspec.MsgspecError:
        raise MalformedRequest(f"the {word} does not belong to this table") from None
