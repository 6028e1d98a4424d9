"""The seam: what a store promises, and what a policy is.

Operations are values, so a store has one verb. The promise of `apply`, which the shared suite repeats line by line:

1. One outcome per operation, in the same order.
2. No key occurs twice in a call: `Table` sees to it.
3. It answers, it does not raise: trouble with the store is an outcome. An exception is a bug, or cancellation.
4. Operations succeed or fail singly. "The store did not get to it" is its own outcome, never "absent".
5. An error says whether the write may have happened, and a store that has to wait answers by the time it was given.
6. Get of nothing is None. Update of nothing without a default is RecordNotFound; with one it is a single atomic step.
7. A call may hold more than the backend accepts in one request: the store splits it.

Knows nothing of HTTP, of settings or of any backend.
"""

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

import msgspec

from .keys import KeySchema
from .operations import Key, Operation, Outcome, Part, Record


class TableSpec(msgspec.Struct, frozen=True):
    """What a store must know of a table: its name, its name in the store, its keys, and its default expiry.

    `key_given` says that the configuration names the key; else a store may take it from the table that it finds.
    `create` lets the store make its table. `options` are what only this kind of store can be told of a table: an
    object of the backend class's `TableOptions`, or None for their defaults. `partitions` is how many a partitioned
    table has, 0 for any other; of one partition's own store, `partition` is the index.
    """

    name: str
    key: KeySchema = KeySchema()
    stored_as: str | None = None
    ttl_s: float | None = None
    key_given: bool = False
    create: bool = False
    consistency: Literal["strong", "eventual"] = "strong"
    options: Any = None
    partitions: int = 0
    partition: int | None = None

    @property
    def name_in_store(self) -> str:
        """Return the name under which the store keeps the table."""
        return self.stored_as or self.name


class Capabilities(msgspec.Struct, frozen=True):
    """What a store can do for a table beyond the four operations."""

    if_match: bool = True
    ttl: bool = True
    tokens: bool = True
    prefix_scan: bool = True
    sorted_scan: bool = True
    splits: bool = True
    any_value: bool = True
    """Whether the backend takes every legal value; what it refuses is the outcome of the operation that brought it."""
    native_update: bool = False
    """Whether the backend itself evaluates updates, where its own expressions mean exactly the same."""
    partitions: bool = False
    """Whether an operation can say which partitions of the table it goes to."""


class Scan(msgspec.Struct, frozen=True):
    """One page to read: which records, at most how many, and after which position (from the page before)."""

    limit: int
    prefix: str | None = None
    partition: Part | None = None
    split: bytes | None = None
    position: bytes | None = None
    bytes_max: int = 2**26
    partitions: tuple[int, ...] | None = None
    """Of a partitioned table: only these; None is all."""


class Page(msgspec.Struct, frozen=True):
    """Some records of a scan, and the position to go on from; None when there is nothing more.

    `partitions` says of each record of a partitioned table where it is.
    """

    records: list[tuple[Key, Record]]
    position: bytes | None
    partitions: list[int] | None = None


class Store(Protocol):
    """The records of one table, as `spec` describes it."""

    @property
    def spec(self) -> TableSpec:
        """Return what the table is, its key taken from the backend where only that knows it."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """Return what can be done beyond the four operations."""
        ...

    async def apply(self, operations: Sequence[Operation], until: float = math.inf) -> list[Outcome]:
        """Do the operations, each by itself, and say what became of each.

        `until` is a time of the running loop's clock. What is unfinished then ends as DeadlineExceeded, while what is
        finished keeps its outcome; a store that never waits for another process need not look at it.
        """
        ...

    async def scan(self, scan: Scan) -> Page:
        """Read a page of records. Raise a TableError if it cannot be read."""
        ...

    async def splits(self, count_max: int) -> list[bytes]:
        """Return 1 to `count_max` disjoint parts that together cover the table."""
        ...


class Policy:
    """A store around a store; a subclass changes `apply`."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner

    @property
    def spec(self) -> TableSpec:
        """Return what the table is."""
        return self._inner.spec

    @property
    def capabilities(self) -> Capabilities:
        """Return what can be done beyond the four operations."""
        return self._inner.capabilities

    async def apply(self, operations: Sequence[Operation], until: float = math.inf) -> list[Outcome]:
        """Hand the operations on."""
        return await self._inner.apply(operations, until)

    async def scan(self, scan: Scan) -> Page:
        """Hand the scan on."""
        return await self._inner.scan(scan)

    async def splits(self, count_max: int) -> list[bytes]:
        """Hand the question on."""
        return await self._inner.splits(count_max)

    async def close(self) -> None:
        """Finish what was accepted, the outer policies first; the store itself is its backend's to close."""
        if isinstance(self._inner, Policy):
            await self._inner.close()


Clock = Callable[[], int]
"""Wall-clock time in Unix milliseconds."""


def now_ms() -> int:
    """Return the wall-clock time in Unix milliseconds."""
    return time.time_ns() // 1_000_000
