"""Records in this process's memory: the reference for how every store behaves.

Everything is lost when the process ends. Nothing waits, so a call is one atomic step.
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
    Get,
    Key,
    NoOptions,
    Operation,
    Outcome,
    Page,
    Range,
    Record,
    Scan,
    Stored,
    TableSpec,
    live_record,
    now_ms,
    ranges_between,
    scan_range,
    transition,
)

SWEPT_PER_WRITE = 2
"""How many records each write looks at, to remove what has expired: expired records stay fewer than live ones."""


class MemorySettings(BaseModel, frozen=True, extra="forbid"):
    """A memory store has nothing to set."""


class MemoryBackend:
    """The tables that this process holds in memory."""

    Settings = MemorySettings
    TableOptions = NoOptions
    single_process = True

    def __init__(self, clock: Clock = now_ms) -> None:
        self._clock = clock
        self._tables: dict[str, MemoryStore] = {}

    @classmethod
    async def open(cls, settings: MemorySettings) -> "MemoryBackend":
        """Return a backend with no records."""
        return cls()

    async def store(self, spec: TableSpec) -> "MemoryStore":
        """Return the records of one table, which may have had another name or other settings before."""
        if (store := self._tables.get(spec.name_in_store)) is None:
            store = MemoryStore(spec, self._clock)
        elif store.spec != spec:
            store = store.called(spec)
        self._tables[spec.name_in_store] = store
        return store

    async def tables(self) -> list[str]:
        """Return the names of the tables that were opened."""
        return sorted(self._tables)

    async def ping(self) -> None:
        """Return: memory is always there."""

    async def close(self) -> None:
        """Forget everything."""
        self._tables.clear()


class MemoryStore:
    """The records of one table, in the order of their keys."""

    capabilities = Capabilities()

    def __init__(self, spec: TableSpec, clock: Clock = now_ms) -> None:
        self.spec = spec
        self._clock = clock
        self._records = SortedDict()
        self._etags = itertools.count(clock())
        self._swept = 0

    def called(self, spec: TableSpec) -> "MemoryStore":
        """Return a store of the same records for a table of another name, or with other settings."""
        same = copy(self)
        same.spec = spec
        return same

    async def apply(self, operations: Sequence[Operation], until: float = math.inf) -> list[Outcome]:
        """Do the operations; none waits for another."""
        now = self._clock()
        return [self._applied(operation, now) for operation in operations]

    async def scan(self, scan: Scan) -> Page:
        """Read a page in the order of keys."""
        now, wanted = self._clock(), scan_range(self.spec, scan)
        records: list[tuple[Key, Record]] = []
        size_bytes = 0
        for key in self._keys(wanted):
            if len(records) == scan.limit or size_bytes > scan.bytes_max:
                return Page(records, self.spec.key.encode(records[-1][0]))
            if (found := live_record(self._records[key], now)) is not None:
                records.append((self.spec.key.decode(key), found))
                size_bytes += len(found.value)
        return Page(records, None)

    async def splits(self, count_max: int) -> list[bytes]:
        """Divide the table into parts of equally many records."""
        keys = self._records.keys()
        count = max(1, min(count_max, len(keys)))
        boundaries = [keys[len(keys) * index // count] for index in range(1, count)]
        return [part.to_split() for part in ranges_between(boundaries)]

    def _keys(self, wanted: Range) -> Sequence[bytes]:
        if wanted.empty:
            return []
        keys: Sequence[bytes] = self._records.irange(wanted.low, wanted.high, inclusive=(True, False))
        return keys

    def _applied(self, operation: Operation, now: int) -> Outcome:
        key = self.spec.key.encode(operation.key)
        stored: Stored | None = self._records.get(key)
        if isinstance(operation, Get):
            return live_record(stored, now)
        step = transition(stored, operation, self.spec, now_ms=now, etag=f"{next(self._etags):x}")
        if isinstance(step, Changed):
            self._keep(key, step.stored)
            self._sweep(now)
        return step.outcome

    def _keep(self, key: bytes, stored: Stored | None) -> None:
        if stored is None:
            self._records.pop(key, None)
        else:
            self._records[key] = stored

    def _sweep(self, now: int) -> None:
        for _ in range(SWEPT_PER_WRITE):
            if self._swept >= len(self._records):
                self._swept = 0
                return
            key, stored = self._records.peekitem(self._swept)
            if stored.live(now):
                self._swept += 1
            else:
                del self._records[key]
