"""The interfaces of stores and policies.

Operations are values, so one method, `apply`, executes all of them. Its contract, which the shared tests check:

1. One outcome per operation, in the same order. The operations may be a `Batch`, and the outcomes `Results`.
2. The keys of a batch are distinct. `Table` ensures this.
3. A failure of the store is an outcome, not an exception. An exception is a bug, or cancellation.
4. Operations succeed or fail independently. An operation that was not executed fails. It never returns "absent".
5. An error states whether the write may have been applied. A store that waits returns by its deadline.
6. Get of an absent record returns None. Update of an absent record without a default returns RecordNotFound. With a
   default it is a single atomic step.
7. A batch may exceed the backend's limit for one request. The store splits it.
8. A store may end a call early when it has read `READ_BYTES_MAX` bytes of values. The operations that it has not
   attempted, never all of them, end as `NOT_READ`, and `Table` sends them again.
9. An update that would leave a value of more than `spec.value_bytes_max` bytes ends as TooLarge. The values of puts and
   the defaults of updates have been checked before.
"""

import time
from collections.abc import Callable, Iterator, Sequence, Sized
from copy import copy
from typing import Any, Literal, Protocol, Self, TypeVar

import msgspec
from pydantic import BaseModel

from .batch import Results
from .budget import NO_DEADLINE, Budget
from .errors import TableError, TooLarge
from .keys import KeySchema, Range
from .operations import Delete, Key, Operation, Outcome, Part, Record, key_bytes

VALUE_BYTES_MAX = 2**20

DELETE_MEMORY_S = 7 * 86_400.0

GENERATION_IN_STORE = "_ts_"
"""Between the name of a table in the store and the number of its generation."""

Options = TypeVar("Options", bound=BaseModel)


class TableSpec(msgspec.Struct, frozen=True):
    """The description of a table that a store needs: its name, its name in the store, its keys, its default expiry.

    `key_given`: the configuration names the key. Otherwise the store may use the key of the backend's existing table.
    `create`: the store may create its table. `options`: an object of the backend class's `TableOptions`, or None for
    the defaults. `partitions`: the number of partitions of a partitioned table, 0 for other tables. `partition`: the
    index, in the spec of a single partition's store. `value_bytes_max`: the maximum size of the JSON text of a value
    that is written. Larger values may exist, and are read. `delete_memory_s`: how long the orders of an absent record
    are kept, in seconds. `generation`: which complete content of the table this is. The first one has the table's own
    name in the store. `loading`: the generation is not readable by the table's name yet, and a crash may remove it. So
    its writes need not be durable before another generation or table has a later durable write.
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
    value_bytes_max: int = VALUE_BYTES_MAX
    delete_memory_s: float = DELETE_MEMORY_S
    generation: int = 1
    loading: bool = False

    def check_value(self, text: Sized) -> None:
        """Raise TooLarge if the text of a value is longer than `value_bytes_max`."""
        if len(text) > self.value_bytes_max:
            raise TooLarge(f"a value may have at most {self.value_bytes_max} bytes (value_bytes_max)")

    def options_of(self, kind: type[Options]) -> Options:
        """Return the options of the table, which are of this kind, or the defaults."""
        return self.options if isinstance(self.options, kind) else kind()

    @property
    def first_name(self) -> str:
        """Return the name of the table's first generation in the store."""
        return self.stored_as or self.name

    @property
    def name_in_store(self) -> str:
        """Return the name of the table, or of its generation, in the store."""
        return self.first_name if self.generation == 1 else f"{self.first_name}{GENERATION_IN_STORE}{self.generation}"


class Capabilities(msgspec.Struct, frozen=True):
    """The capabilities of a store for one table, beyond the four operations."""

    if_match: bool = True
    ttl: bool = True
    tokens: bool = True
    prefix_scan: bool = True
    sorted_scan: bool = True
    """Whether a scan of the whole table is in the order of the keys."""
    partition_scan: bool = True
    """Whether a scan of one partition of a composite key is in sort order, and reads only that partition."""
    splits: bool = True
    any_value: bool = True
    """Whether the backend accepts every valid value. If not, an operation with a value that it rejects fails."""
    partitions: bool = False
    """Whether an operation can name the partitions of the table that it is sent to."""
    generations: bool = True
    """Whether the store can keep several complete contents of the table, under names of their own."""

    def by_name(self) -> dict[str, bool]:
        """Return the capabilities. A record keeps its orders beside its tokens, so that a table has both or neither."""
        return {**msgspec.structs.asdict(self), "order": self.tokens}


class Scan(msgspec.Struct, frozen=True):
    """One page to read: which records, how many at most, and the position (from the previous page) to continue from."""

    limit: int
    prefix: str | None = None
    partition: Part | None = None
    split: bytes | None = None
    position: bytes | None = None
    bytes_max: int = 2**26
    partitions: tuple[int, ...] | None = None
    """The partitions of a partitioned table to read. None is all."""


def scan_range(spec: TableSpec, scan: Scan) -> Range:
    """Return the range of encoded keys that a scan has still to read."""
    wanted = Range(*spec.key.bounds(scan.partition, scan.prefix))
    if scan.split is not None:
        wanted = wanted.intersection(Range.from_split(scan.split))
    if scan.position is not None:
        wanted = wanted.intersection(Range(scan.position + b"\0"))
    return wanted


class Page(msgspec.Struct, frozen=True):
    """Some records of a scan, and the position to continue from, or None if the scan is complete.

    `partitions` contains the partition of each record of a partitioned table.
    """

    records: Sequence[tuple[Key, Record]]
    position: bytes | None
    partitions: list[int] | None = None

    @property
    def size_bytes(self) -> int:
        """Return about the size of the keys and values in JSON."""
        return sum([len(record.value) for _, record in self.records]) + key_bytes([key for key, _ in self.records])


PAGE_SKIPPED_MAX = 10_000
"""How many expired records one page skips before it ends early. The next page continues there."""

PAGE_SEARCH_S = 0.25
"""How long one page asks other processes for records before it ends early, with the records found so far."""


class KeyedRecords(Sequence[tuple[Key, Record]]):
    """The records of a page, none of which is absent: their keys, and the records in columns."""

    def __init__(self, keys: Sequence[Key], records: Results) -> None:
        self.keys = keys
        self.records = records

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, index: Any) -> Any:
        return [*self][index]

    def __iter__(self) -> Iterator[tuple[Key, Record]]:
        both = zip(self.keys, self.records, strict=True)
        return ((key, record) for key, record in both if isinstance(record, Record))

    def __eq__(self, other: object) -> bool:
        """Return whether the other is a sequence of equal items."""
        return isinstance(other, Sequence) and [*self] == [*other]

    __hash__ = None  # type: ignore[assignment]  # like a list


class PageBuilder:
    """The records of one page.

    `complete`: the page has reached a limit of the scan, or has `skipped` too many expired records.
    """

    def __init__(self, scan: Scan) -> None:
        self.complete = False
        self.bytes_left = scan.bytes_max
        self.skipped = 0
        self._limit = scan.limit
        self._keys: list[Key] = []
        self._parts: list[Results] = []
        self._last: list[Record] = []  # not yet in a part

    @property
    def records(self) -> KeyedRecords:
        """The records, in columns."""
        self._end_part()
        return KeyedRecords(self._keys, Results.joined(self._parts or [Results(Record, {"value": [], "etag": []})]))

    def _end_part(self) -> None:
        if self._last and (part := Results.of(self._last)) is not None:
            self._parts.append(part)
            self._last = []

    def add(self, key: Key, outcome: Outcome) -> None:
        """Add the outcome of a get: a record, or None for one that has expired. Raise an error as that of a scan."""
        if isinstance(outcome, TableError):
            raise outcome.of_scan(key)
        if not isinstance(outcome, Record):
            self.skip()
            return
        self._keys.append(key)
        self._last.append(outcome)
        self.bytes_left -= len(outcome.value) + key_bytes(key)
        self.complete = self.bytes_left < 0 or self.room <= 0

    def add_all(self, keys: Sequence[Key], outcomes: Sequence[Outcome]) -> bool:
        """Add the records of these keys and return True. Add none if one is absent or an error, or if not all fit."""
        results = Results.of(outcomes)
        if results is None or results.failed or results.absent or len(keys) > self.room:
            return False
        left_bytes = self.bytes_left - results.value_bytes - key_bytes(keys)
        if left_bytes < 0:
            return False
        self._keys += keys
        self._end_part()
        self._parts.append(results)
        self.bytes_left = left_bytes
        self.complete = self.room <= 0
        return True

    @property
    def count(self) -> int:
        """How many records the page has."""
        return len(self._keys)

    @property
    def room(self) -> int:
        """How many more records the page may have."""
        return self._limit - self.count

    def skip(self) -> None:
        """Count a record that has expired."""
        self.skipped += 1
        self.complete = self.skipped >= PAGE_SKIPPED_MAX


class Store(Protocol):
    """The records of one table, described by `spec`.

    Optional members: `drop` removes the table with everything that the store remembers of it, and succeeds if the table
    is absent. The store is not used afterwards. `estimate` returns an `Estimate` without reading the records. Both are
    awaited, and raise a TableError if they fail. `writes_per_call_max` is how many single writes of one kind and of
    different callers a call may have, in one round trip.
    """

    @property
    def spec(self) -> TableSpec:
        """Return the table's description, with the backend's key if the configuration names none."""

    @property
    def capabilities(self) -> Capabilities:
        """Return the capabilities beyond the four operations."""

    async def apply(self, operations: Sequence[Operation], budget: Budget = NO_DEADLINE) -> Sequence[Outcome]:
        """Apply the operations independently, and return their outcomes in the same order.

        Operations that are unfinished at the budget's deadline end as DeadlineExceeded. Finished ones keep their
        outcomes. A store that never waits for another process may ignore it.
        """

    async def scan(self, scan: Scan) -> Page:
        """Read a page of records. Raise a TableError if it cannot be read.

        A page that would take long to fill, for example among expired records, ends early, and may be empty.
        """

    async def splits(self, count_max: int) -> list[bytes]:
        """Divide the table into 1 to `count_max` disjoint splits that together cover it."""


class Estimate(msgspec.Struct, frozen=True):
    """About the number and the size of a table's records. None is unknown."""

    records: int | None = None
    size_bytes: int | None = None


class Policy:
    """A store that wraps another store. Subclasses override `apply`."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner

    @property
    def spec(self) -> TableSpec:
        """Return the table's description."""
        return self._inner.spec

    @property
    def capabilities(self) -> Capabilities:
        """Return the capabilities beyond the four operations."""
        return self._inner.capabilities

    def around(self, inner: Store) -> Self:
        """Return a policy with the same state, such as limits, around another store."""
        twin = copy(self)
        twin._inner = inner  # noqa: SLF001
        return twin

    async def apply(self, operations: Sequence[Operation], budget: Budget = NO_DEADLINE) -> Sequence[Outcome]:
        """Apply the operations to the inner store."""
        return await self._inner.apply(operations, budget)

    async def scan(self, scan: Scan) -> Page:
        """Scan the inner store."""
        return await self._inner.scan(scan)

    async def splits(self, count_max: int) -> list[bytes]:
        """Return the splits of the inner store."""
        return await self._inner.splits(count_max)

    async def close(self) -> None:
        """Finish accepted operations, outer policies first. The store itself is closed by its backend."""
        if isinstance(self._inner, Policy):
            await self._inner.close()


Clock = Callable[[], int]
"""Wall-clock time in Unix milliseconds."""


def now_ms() -> int:
    """Return the wall-clock time in Unix milliseconds."""
    return time.time_ns() // 1_000_000


DELETED_AT_ONCE = 1000


async def drop_records(store: Store) -> None:
    """Remove a table's records. Raise a TableError if that fails: a second call removes the rest."""
    if hasattr(store, "drop"):
        await store.drop()
        return
    position: bytes | None = b""
    while position is not None:
        page = await store.scan(Scan(DELETED_AT_ONCE, position=position or None))
        deletes = [Delete(key, forget=True) for key, _ in page.records]
        outcomes = await store.apply(deletes) if deletes else []
        if failed := next((outcome for outcome in outcomes if isinstance(outcome, TableError)), None):
            raise failed
        position = page.position
