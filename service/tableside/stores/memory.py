"""Records in the memory of this process: the reference implementation of a store.

All records are lost when the process ends. Each operation is atomic, because it awaits nothing.
"""

import itertools
import math
from collections.abc import Sequence
from copy import copy

from pydantic import BaseModel
from sortedcontainers import SortedDict

from ..core import (
    Capabilities,
    Changed,
    Clock,
    DeadlineExceeded,
    Get,
    Key,
    NoOptions,
    Operation,
    Outcome,
    Page,
    PageBuilder,
    Range,
    Record,
    Scan,
    Stored,
    TableSpec,
    Yielder,
    chunks_of,
    live_record,
    now_ms,
    ranges_between,
    scan_range,
    transition,
)

PIECE_GETS = 500
"""How many records are read before other tasks may run."""

EXPIRY_CHECKS_PER_WRITE = 2
"""How many records each write checks for expiry. Two keep expired records fewer than live ones."""


class MemorySettings(BaseModel, frozen=True, extra="forbid"):
    """A memory store has no settings."""

    @property
    def place(self) -> str:
        """Return where the records are."""
        return "in the memory of this process"


class MemoryBackend:
    """The tables in the memory of this process."""

    Settings = MemorySettings
    TableOptions = NoOptions
    single_process = True

    def __init__(self, clock: Clock = now_ms) -> None:
        self._clock = clock
        self._tables: dict[str, MemoryStore] = {}

    @classmethod
    async def open(cls, settings: MemorySettings) -> "MemoryBackend":
        """Return a backend without tables."""
        return cls()

    async def store(self, spec: TableSpec) -> "MemoryStore":
        """Return the store of one table. The table keeps its records if its name or settings have changed."""
        if (store := self._tables.get(spec.name_in_store)) is None:
            store = MemoryStore(spec, self._clock)
        elif store.spec != spec:
            store = store.with_spec(spec)
        self._tables[spec.name_in_store] = store
        return store

    async def tables(self) -> list[str]:
        """Return the names of the opened tables."""
        return sorted(self._tables)

    async def ping(self) -> None:
        """Do nothing: memory is always available."""

    async def close(self) -> None:
        """Discard all tables."""
        self._tables.clear()


class MemoryStore:
    """The records of one table, sorted by key."""

    capabilities = Capabilities()

    def __init__(self, spec: TableSpec, clock: Clock = now_ms) -> None:
        self.spec = spec
        self._clock = clock
        self._records = SortedDict()
        self._etags = itertools.count(clock())
        self._sweep_index = 0

    def with_spec(self, spec: TableSpec) -> "MemoryStore":
        """Return a store with the same records and another spec."""
        store = copy(self)
        store.spec = spec
        return store

    async def apply(self, operations: Sequence[Operation], until: float = math.inf) -> list[Outcome]:
        """Apply the operations, each in one atomic step. Other tasks may run between two of them."""
        now = self._clock()
        if set(map(type, operations)) == {Get}:
            return await self._get_all(operations, now)
        if len(operations) == 1:
            return [self._apply_one(operations[0], now)]
        yielder = Yielder()
        outcomes, late = list[Outcome](), yielder.is_past(until)
        for operation in operations:
            if yielder.due:
                await yielder.maybe_yield()
                late = yielder.is_past(until)
            outcomes.append(self._too_late() if late else self._apply_one(operation, now))
        return outcomes

    async def scan(self, scan: Scan) -> Page:
        """Read a page in the order of keys. It ends early when it has skipped PAGE_SKIPPED_MAX expired records."""
        now, key_range = self._clock(), scan_range(self.spec, scan)
        page, last = PageBuilder(scan), b""
        for key in self._keys(key_range):
            if page.complete:
                return Page(page.records, last)
            last, found = key, live_record(self._records[key], now)
            if found is None:
                page.skip()
            else:
                page.add(self.spec.key.decode(key), found)
        return Page(page.records, None)

    async def splits(self, count_max: int) -> list[bytes]:
        """Divide the table into parts with the same number of records."""
        keys = self._records.keys()
        count = max(1, min(count_max, len(keys)))
        boundaries = [keys[len(keys) * index // count] for index in range(1, count)]
        return [part.to_split() for part in ranges_between(boundaries)]

    def _keys(self, key_range: Range) -> Sequence[bytes]:
        if key_range.empty:
            return []
        keys: Sequence[bytes] = self._records.irange(key_range.low, key_range.high, inclusive=(True, False))
        return keys

    async def _get_all(self, gets: Sequence[Operation], now: int) -> list[Outcome]:
        if len(gets) <= PIECE_GETS:
            return [self._get(get.key, now) for get in gets]
        outcomes, yielder = list[Outcome](), Yielder()
        for piece in chunks_of(gets, PIECE_GETS):
            await yielder.maybe_yield()
            outcomes += [self._get(get.key, now) for get in piece]
        return outcomes

    def _get(self, key: Key, now: int) -> Record | None:
        return live_record(self._records.get(self.spec.key.encode(key)), now)

    def _apply_one(self, operation: Operation, now: int) -> Outcome:
        if isinstance(operation, Get):
            return self._get(operation.key, now)
        key = self.spec.key.encode(operation.key)
        etag = f"{next(self._etags):x}"
        step = transition(self._records.get(key), operation, self.spec, now_ms=now, etag=etag)
        if isinstance(step, Changed):
            self._set(key, step.stored)
            self._sweep(now)
        return step.outcome

    def _too_late(self) -> DeadlineExceeded:
        return DeadlineExceeded(f"table {self.spec.name!r}: the deadline was over", applied="no")

    def _set(self, key: bytes, stored: Stored | None) -> None:
        if stored is None:
            self._records.pop(key, None)
        else:
            self._records[key] = stored

    def _sweep(self, now: int) -> None:
        for _ in range(EXPIRY_CHECKS_PER_WRITE):
            if self._sweep_index >= len(self._records):
                self._sweep_index = 0
                return
            key, stored = self._records.peekitem(self._sweep_index)
            if stored.live(now):
                self._sweep_index += 1
            else:
                del self._records[key]
