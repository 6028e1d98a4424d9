"""Records in the memory of this process: the reference implementation of a store.

All records are lost when the process ends. Each operation is atomic: it awaits nothing.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from typing import Any

from pydantic import BaseModel
from sortedcontainers import SortedDict

from ..core import (
    NO_DEADLINE,
    NO_MEMORY,
    Batch,
    Budget,
    Capabilities,
    Changed,
    Clock,
    Estimate,
    Get,
    Memory,
    NoOptions,
    Operation,
    Outcome,
    Page,
    PageBuilder,
    Put,
    Record,
    Results,
    Scan,
    Stored,
    TableSpec,
    Written,
    Yielder,
    apply_by_kind,
    even_splits,
    expiries_ms,
    joined_outcomes,
    live_record,
    now_ms,
    put_columns,
    scan_range,
    transition,
)

PIECE_OPERATIONS = 1000
"""How many operations are executed before other tasks may run."""

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
        store = self._tables.get(spec.name_in_store) or MemoryStore(spec, self._clock, self._tables)
        if store.spec != spec:
            store = copy(store)
            store.spec = spec
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

    def __init__(self, spec: TableSpec, clock: Clock = now_ms, tables: "dict[str, MemoryStore] | None" = None) -> None:
        self.spec = spec
        self._clock = clock
        self._tables = {} if tables is None else tables
        self._records = SortedDict()
        self._etags = itertools.count(clock())
        self._sweep_index = 0
        self._first_expiry_ms = math.inf

    async def apply(self, operations: Sequence[Operation], budget: Budget = NO_DEADLINE) -> Sequence[Outcome]:
        """Apply the operations, each in one atomic step. Other tasks may run between two of them."""
        if len(operations) == 1:
            return [self._apply_one(operations[0], self._clock())]
        return await apply_by_kind(operations, partial(self._apply_batch, budget=budget))

    async def _apply_batch(self, batch: Batch, budget: Budget) -> Sequence[Outcome]:
        if batch.kind is Get:
            return await self._apply_in_pieces(batch, budget, self._get_all)
        if batch.kind is Put and batch.has_only("key", "value", "ttl_s", "token"):
            return await self._apply_in_pieces(batch, budget, self._put_all)
        # One by one, because an update may take long.
        now, outcomes, yielder = self._clock(), list[Outcome](), Yielder()
        late = budget.is_over()
        for operation in batch:
            if yielder.due:
                await yielder.maybe_yield()
                late = budget.is_over()
            outcomes.append(budget.exceeded() if late else self._apply_one(operation, now))
        return outcomes

    async def _apply_in_pieces(
        self, batch: Batch, budget: Budget, apply: Callable[[Batch, int], Sequence[Outcome]]
    ) -> Sequence[Outcome]:
        outcomes, yielder = list[Sequence[Outcome]](), Yielder()
        for start in range(0, len(batch), PIECE_OPERATIONS):
            if budget.is_over():
                outcomes.append([budget.exceeded()] * (len(batch) - start))
                break
            outcomes.append(apply(batch[start : start + PIECE_OPERATIONS], self._clock()))
            await yielder.maybe_yield()
        return joined_outcomes(outcomes)

    async def scan(self, scan: Scan) -> Page:
        """Read a page in the order of keys. It ends early when it has skipped PAGE_SKIPPED_MAX expired records."""
        now, key_range = self._clock(), scan_range(self.spec, scan)
        page, last = PageBuilder(scan), b""
        for key in self._records.irange(key_range.low, key_range.high, inclusive=(True, False)):
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
        return even_splits(self._records.keys(), count_max)

    async def drop(self) -> None:
        """Remove the table."""
        self._tables.pop(self.spec.name_in_store, None)
        self._records.clear()

    async def estimate(self) -> Estimate:
        """Return the number of records, including expired ones."""
        return Estimate(len(self._records))

    def _get_all(self, gets: Batch, now: int) -> Results:
        encode, records = self.spec.key.encode_all, self._records
        found = [live_record(records.get(key), now) for key in encode(gets.columns["key"], b"")]
        columns: dict[str, Sequence[Any]] = {
            "value": [None if record is None else record.value for record in found],
            "etag": [None if record is None else record.etag for record in found],
        }
        expires_ms = [0 if record is None else record.expires_ms for record in found]
        return Results(Record, columns | ({"expires_ms": expires_ms} if any(expires_ms) else {}))

    def _put_all(self, puts: Batch, now: int) -> Sequence[Outcome]:
        """Put values without conditions. A put that may be a repetition is applied alone."""
        records, memory_s, decided = self._records, self.spec.delete_memory_s, dict[int, Outcome]()
        tokens = puts.cells("token")
        memories = {token: NO_MEMORY if token is None else Memory.of_put(token, None) for token in set(tokens)}
        keys, values = self.spec.key.encode_all(puts.columns["key"], b""), puts.cells("value")
        etags = [f"{number:x}" for number in itertools.islice(self._etags, len(puts))]
        expiries = expiries_ms(puts.cells("ttl_s"), self.spec.ttl_s, now)
        self._first_expiry_ms = min([self._first_expiry_ms, *filter(None, expiries)])
        replace = partial(dict.__setitem__, records)  # The record keeps its place in the order of keys.
        for at, (key, value, etag, expires_ms) in enumerate(zip(keys, values, etags, expiries, strict=True)):
            memory, stored = memories[tokens[at]], records.get(key)
            if stored is not None and stored.memory is not NO_MEMORY:
                stored = stored.remembered(now, memory_s)
                present = NO_MEMORY if stored is None else stored.memory
                if not memory:
                    memory = present
                elif present and not memory.replaces(present):
                    decided[at] = self._apply_one(puts[at], now)
                    continue
            put = records.__setitem__ if stored is None else replace
            put(key, Stored(value, etag, expires_ms, memory))
        self._sweep(len(puts), now)
        written = Results(Written, put_columns(puts, etags, expiries))
        return [decided.get(at, outcome) for at, outcome in enumerate(written)] if decided else written

    def _apply_one(self, operation: Operation, now: int) -> Outcome:
        key = self.spec.key.encode(operation.key)
        if isinstance(operation, Get):
            return live_record(self._records.get(key), now)
        etag = f"{next(self._etags):x}"
        step = transition(self._records.get(key), operation, self.spec, now_ms=now, etag=etag)
        if isinstance(step, Changed):
            if step.stored is None:
                self._records.pop(key, None)
            else:
                self._records[key] = step.stored
                self._first_expiry_ms = min(self._first_expiry_ms, step.stored.expires_ms or math.inf)
            self._sweep(1, now)
        return step.outcome

    def _sweep(self, writes: int, now: int) -> None:
        """Remove the expired ones among the next records, once the first that expires may have."""
        if now < self._first_expiry_ms:
            return
        start, records = self._sweep_index, self._records
        keys = list(records.islice(start, start + EXPIRY_CHECKS_PER_WRITE * writes))
        passed = [key for key in keys if 0 < records[key].expires_ms <= now]
        expired = [key for key in passed if not records[key].remembered(now, self.spec.delete_memory_s)]
        for key in expired:
            del records[key]
        self._sweep_index = start + len(keys) - len(expired) if keys else 0
