"""Tables partitioned over several named stores: shards, regions or copies.

Each operation goes to the partitions that it names (one, several, all or none), or to the partition of its key. The
stores may be of any kind. Each partition is a separate store with separate policies, so a cache never contains records
of two partitions. It is opened by its first operation, because an unavailable partition must not block the others.
"""

import asyncio
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from itertools import pairwise
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec.structs import asdict, replace
from pydantic import BaseModel, Field

from ..core import (
    FLAGS,
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
    NoOptions,
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
    target_partitions,
    value_bytes,
    without_value,
)

PARTITIONS_MAX = 256

OPEN_TIMEOUT_S = 1.0
"""How long opening a table waits for its partitions. A slower partition is opened by the first operation on it."""

DEADLINE_GRACE_S = 0.05
"""How long after the deadline to wait for a partition. Shorter than the grace of the table, which ends all of them."""

NEXT_PARTITION_TIMEOUT_S = 1.0
"""How long a page that has records waits for the next partition. A page without records has no such timeout."""

SPLITS_CONCURRENCY_MAX = 8

RETURNED_BYTES_MAX = 2**26
"""After so many bytes of returned values, repeated writes return no value. This is the default limit of a response."""

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


class PartitionedSettings(BaseModel, frozen=True, extra="forbid"):
    """The names of the stores, in the order of their partitions."""

    partitions: Annotated[tuple[str, ...], Field(min_length=1, max_length=PARTITIONS_MAX)]

    @property
    def place(self) -> str:
        """Return the number of stores."""
        return f"{len(self.partitions)} stores"


class PartitionedBackend:
    """Several backends as one. Does not close them."""

    Settings = PartitionedSettings
    TableOptions = NoOptions
    single_process = False

    def __init__(self, settings: PartitionedSettings) -> None:
        self._names = settings.partitions
        self._backends: Sequence[Backend] = ()

    @classmethod
    async def open(cls, settings: PartitionedSettings) -> "PartitionedBackend":
        """Return a backend without stores. `compose` adds them."""
        return cls(settings)

    def compose(self, backends: Mapping[str, Backend]) -> None:
        """Select the backends that the settings name from all open backends, by name."""
        self._backends = [backends[name] for name in self._names]
        self.single_process = any(backend.single_process for backend in self._backends)

    async def store(self, spec: TableSpec) -> "PartitionedStore":
        """Return the store of one table, opened in every partition that is available now.

        Raise StoreUnavailable if no partition is available. Raise any other error of any partition.
        """
        partitions, options = list[LazyStore](), None if isinstance(spec.options, NoOptions) else spec.options
        for index, backend in enumerate(self._backends):
            partitions.append(LazyStore(backend, replace(spec, partition=index, options=options), partitions))
        budget = Budget(time.monotonic() + OPEN_TIMEOUT_S)
        opened = await asyncio.gather(*(part.ensure_open(budget) for part in partitions), return_exceptions=True)
        failures = {index: result for index, result in enumerate(opened) if isinstance(result, BaseException)}
        for index, failure in failures.items():
            if not isinstance(failure, TableError):
                raise failure
            if not isinstance(failure, StoreUnavailable) or len(failures) == len(partitions):
                raise type(failure)(f"partition {index}, in store {self._names[index]!r}: {failure.detail}")
        return PartitionedStore(spec, partitions)

    async def tables(self) -> list[str]:
        """Return the names of the tables with records in any available partition.

        Raise StoreUnavailable if no partition is available.
        """
        answers = await asyncio.gather(*(backend.tables() for backend in self._backends), return_exceptions=True)
        names: set[str] = set()
        for answer in answers:
            if isinstance(answer, list):
                names.update(answer)
            elif not isinstance(answer, StoreUnavailable) or not any(isinstance(one, list) for one in answers):
                raise answer
        return sorted(names)

    async def ping(self) -> None:
        """Raise StoreUnavailable, with the unreachable partitions and the reasons, unless all are reachable."""
        answers = await asyncio.gather(*(backend.ping() for backend in self._backends), return_exceptions=True)
        unreachable = []
        for index, answer in enumerate(answers):
            if isinstance(answer, TableError):
                unreachable.append(f"partition {index} in {self._names[index]!r} ({answer.detail})")
            elif answer is not None:
                raise answer
        if unreachable:
            raise StoreUnavailable(f"cannot be reached: {', '.join(unreachable)}")

    async def close(self) -> None:
        """Do nothing: the code that opened the partitions' backends closes them."""


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
                        store = await self._backend.store(self._requested_spec)
                        if store.spec.ttl_s is not None and not store.capabilities.ttl:
                            raise Unsupported("ttl: its store keeps no expiry for this table, and ttl_s is set")
                        if any(other.is_open and other.spec.key != store.spec.key for other in self._siblings):
                            raise Unsupported(
                                "partitions: the table's key in this store differs from its key in the other partitions"
                            )
                        self._store = store
            except TimeoutError:
                raise StoreUnavailable(f"table {self._requested_spec.name!r}: its store does not respond") from None
        return self._store

    async def apply(self, operations: Sequence[Operation], budget: Budget = NO_DEADLINE) -> Sequence[Outcome]:
        """Apply the operations. If the store cannot be opened, its error is the outcome of each operation."""
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
        return replace(self._requested_spec, key=key, partitions=len(self.partitions))

    @property
    def capabilities(self) -> Capabilities:
        """Return the capabilities that all open partitions share. A scan of several partitions is never sorted."""
        found = [asdict(part.capabilities) for part in self.partitions if part.is_open] or [asdict(Capabilities())]
        common = {name: all(one[name] for one in found) for name in found[0]}
        if len(self.partitions) > 1:
            common |= {"sorted_scan": False, "partition_scan": False}
        return Capabilities(**{**common, "partitions": True, "generations": False})

    async def apply(self, operations: Sequence[Operation], budget: Budget = NO_DEADLINE) -> list[Outcome]:
        """Apply the operations in their partitions, concurrently."""
        placements: list[tuple[int, ...] | InvalidOperation] = []
        batches: dict[int, list[Operation]] = {}
        for operation in operations:
            try:
                indexes = target_partitions(operation, len(self._stores))
            except InvalidOperation as error:
                placements.append(error)
                continue
            placements.append(indexes)
            for index in indexes:
                batches.setdefault(index, []).append(operation)
        coroutines = [self._apply_in(index, batch, budget) for index, batch in batches.items()]
        outcomes = await gather_bounded(coroutines, len(self.partitions))
        # Each partition's outcomes are in the order of its operations.
        by_partition: dict[int, Iterator[Any]] = dict(zip(batches, map(iter, outcomes), strict=True))
        combined: list[Outcome] = []
        for operation, placement in zip(operations, placements, strict=True):
            if isinstance(placement, InvalidOperation):
                combined.append(placement)
            elif isinstance(operation, Get):
                combined.append(next(by_partition[placement[0]]))
            else:
                placed = [PartitionOutcome(index, next(by_partition[index])) for index in placement]
                combined.append(combine_outcomes(tuple(placed)))
        return combined

    async def scan(self, scan: Scan) -> Page:
        """Read a page from one partition, and continue with the next ones if it has no more records.

        If a partition fails or is slow and the page already has records, the page ends there. The next page then
        starts with that partition and raises its error. A page also ends after PAGE_SEARCH_S.
        """
        count = len(self._stores)
        split = Split(0, count - 1) if scan.split is None else _decoded(scan.split, Split, "split")
        start = Position(split.first) if scan.position is None else _decoded(scan.position, Position, "cursor")
        selected = range(count) if scan.partitions is None else scan.partitions
        records, partitions, ends_at = list[tuple[Key, Record]](), list[int](), math.inf
        rest = replace(scan, split=split.inner, partitions=None)

        def page(position: Position | None) -> Page:
            return Page(records, msgspec.msgpack.encode(position) if position else None, partitions or None)

        for index in (index for index in selected if max(start.partition, split.first) <= index <= split.last):
            if rest.limit <= 0 or rest.bytes_max < 0 or time.monotonic() >= ends_at:
                return page(Position(index))
            rest = replace(rest, position=start.inner if index == start.partition else None)
            ends_at = min(ends_at, time.monotonic() + PAGE_SEARCH_S)
            try:
                async with asyncio.timeout(NEXT_PARTITION_TIMEOUT_S if records else None):
                    found = await self._stores[index].scan(rest)
            except (TableError, TimeoutError):
                if not records:
                    raise
                return page(Position(index, rest.position))
            records += found.records
            partitions += [index] * len(found.records)
            if found.position is not None:
                return page(Position(index, found.position))
            rest = replace(rest, limit=rest.limit - len(found.records), bytes_max=rest.bytes_max - found.size_bytes)
        return page(None)

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

    async def _apply_in(self, index: int, operations: Sequence[Operation], budget: Budget) -> Sequence[Outcome]:
        """Apply operations in one partition. Repeat the writes that it has not attempted.

        The outcomes of the other partitions are final, so the table cannot send such a write again.
        """
        outcomes = await self._call(index, operations, budget)
        writes = [at for at, operation in enumerate(operations) if not isinstance(operation, Get)]
        while waiting := [at for at in writes if outcomes[at] is NOT_READ]:
            full = value_bytes(outcomes) > RETURNED_BYTES_MAX
            repeated = [without_value(operations[at]) if full else operations[at] for at in waiting]
            outcomes = list(outcomes)
            for at, outcome in zip(waiting, await self._call(index, repeated, budget), strict=True):
                outcomes[at] = outcome
        return outcomes

    async def _call(self, index: int, operations: Sequence[Operation], budget: Budget) -> Sequence[Outcome]:
        """Call the store of a partition. End after the deadline, so that the outcomes of the others are kept."""
        try:
            async with budget.timeout(DEADLINE_GRACE_S):
                return await self._stores[index].apply(operations, budget)
        except TimeoutError:
            return budget.unanswered(operations)


def combine_outcomes(placed: tuple[PartitionOutcome, ...]) -> Written | TableError:
    """Return a success if every partition succeeded, else the first failure by index with the number of failures.

    The result lists the outcome of each partition. The outcome of a single partition is otherwise unchanged, as in a
    table without partitions. A write to no partition succeeds and changes nothing.
    """
    written = [one.outcome for one in placed if isinstance(one.outcome, Written)]
    if len(written) == len(placed):
        if len(written) == 1:
            return replace(written[0], partitions=placed)
        flags: dict[str, Any] = {flag: bool(written) and all(getattr(one, flag) for one in written) for flag in FLAGS}
        return Written(None, partitions=placed, **flags)
    errors = {one.partition: one.outcome for one in placed if isinstance(one.outcome, TableError)}
    count, first = len(errors), next(iter(errors.values()))
    combined = copy(first)
    combined.partitions = placed
    if len(placed) > 1:
        indexes = ", ".join(map(str, errors))
        combined.detail = f"{count} of {len(placed)} partitions failed ({indexes}); the first error: {first.detail}"
        combined.args = (combined.detail,)
        combined.retriable = all(error.retriable for error in errors.values())
        not_applied = count == len(placed) and all(error.applied == "no" for error in errors.values())
        combined.applied = "no" if not_applied else "unknown"
        waits_s = [error.retry_after_s for error in errors.values() if error.retry_after_s is not None]
        combined.retry_after_s = max(waits_s, default=None) if combined.retriable else None
    return combined


def _decoded(raw: bytes, kind: type[Encoded], word: str) -> Encoded:
    try:
        return msgspec.msgpack.decode(raw, type=kind)
    except msgspec.MsgspecError:
        raise MalformedRequest(f"the {word} does not belong to this table") from None
