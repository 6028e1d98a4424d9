"""The control table of a store: one record with the generations of all its tables, which all processes share.

Every process reads it each second. One whose copy is older than STALE_S reads it again before it answers, so a change
has reached all processes after that time.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable
from typing import TypeAlias

import msgspec

from ..core import NO_EXPIRY, Get, Put, Record, TableSpec, Written, now_ms
from ..core.errors import (
    Contended,
    PreconditionFailed,
    RecordUnreadable,
    StoreMisconfigured,
    StoreUnavailable,
    TableError,
    TableNotFound,
    TooLarge,
)
from ..settings import TableSettings
from .entry import CatalogEntry
from .generations import Generations
from .open_stores import OpenStore
from .table import Table

log = logging.getLogger(__name__)

CONTROL = "_ts_generations"
"""The name of a control table in its store."""

KEY = "generations"

ONLY_FIRST = Generations()

AllGenerations = dict[str, Generations]
"""The generations of a store's tables, by the table's name in the store. Others have only their first generation."""

STALE_S = 1.8
"""The maximum age of a process's copy, in seconds."""

CHANGES_MAX = 20
"""How often a change is decided again after another process has changed the record."""

RECORD_BYTES_MAX = 300_000
"""The size of the record above which no generation is created. DynamoDB has items of at most 400 KB."""

Step: TypeAlias = Callable[[Generations], Generations]
"""Decides a change of one table's generations, or raises a TableError."""


class ControlTable:
    """The generations of one store's tables. A partitioned store has none but first ones, and no such table.

    `alone`: no other process uses the store. `required`: a table of the settings needs generations. If none does, a
    store that forbids reading the control table has no generations, as long as it forbids that (`forbidden`).
    `failing`: the last change could not be followed, which was logged.
    """

    def __init__(self, store: OpenStore, *, required: bool) -> None:
        self.alone = store.backend.single_process
        self.required = required
        self.forbidden = False
        self.failing = False
        self.tables: AllGenerations = {}
        # Limits must not keep the service from learning which generation is current.
        self._store = msgspec.structs.replace(store, in_flight=None, operations=None)
        self._entry: CatalogEntry | None = None
        self._etag: str | None = None
        self._read_at = math.inf if store.partitions else -math.inf
        self._reading: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()
        """Between a decision and its write, the copy must not change."""

    def of(self, name: str) -> Generations:
        """Return the generations of the table with this name in the store, as far as this process knows them."""
        return self.tables.get(name, ONLY_FIRST)

    def known(self, name: str) -> Generations | None:
        """Return the generations of a table, or None if they are unknown or stale.

        A table without other generations, in a store that needs none, is looked up once.
        """
        found = self.tables.get(name)
        stale_at = time.monotonic() - STALE_S if found or self.required or self.forbidden else -math.inf
        return None if self._read_at <= stale_at else found or ONLY_FIRST

    async def refresh(self, age_max_s: float = STALE_S) -> None:
        """Read the record if the copy is older. Concurrent calls share a read. Raise a TableError if that fails."""
        moment = time.monotonic() - age_max_s
        while self._read_at < moment:
            if self._reading is None or self._reading.done():
                self._reading = asyncio.create_task(self._read())
                # Every caller may have been cancelled.
                self._reading.add_done_callback(lambda reading: reading.cancelled() or reading.exception())
            await asyncio.shield(self._reading)

    async def change(self, name: str, step: Step) -> tuple[Generations, Generations]:
        """Change the generations of a table by compare-and-set. Return them before and after, or raise a TableError.

        `step` may be called repeatedly. A change that was applied without an answer is decided again, so `step`
        must recognize its own change.
        """
        for _ in range(CHANGES_MAX):
            await self.refresh(0)
            async with self._lock:
                before = self.of(name)
                if (after := step(before)) == before or await self._replaced(name, after):
                    return before, after
        raise Contended("other processes changed the generations of this store's tables at the same time")

    async def close(self) -> None:
        """Cancel a read in flight, and close the table."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])
        if self._entry is not None:
            await self._entry.close()

    async def _table(self, *, create: bool = False) -> Table:
        """Return the table. If it is absent, create it or raise TableNotFound."""
        if self._entry is None or (create and not self._entry.spec.create):
            settings = TableSettings(store=self._store.name)
            self._entry = CatalogEntry(TableSpec(CONTROL, create=create), settings, self._store)
        return await self._entry.opened()

    async def _read(self) -> None:
        async with self._lock:
            started = time.monotonic()
            found = await self._found()
            if found is None:
                self._keep({}, None, started)
            else:
                tables = self.tables if found.etag == self._etag else self._decoded(found.value)
                self._keep(tables, found.etag, started)

    def _decoded(self, text: bytes) -> AllGenerations:
        """Return the generations. What loads in a store of this process alone was interrupted when it last ended."""
        try:
            tables = msgspec.json.decode(text, type=AllGenerations)
        except msgspec.DecodeError as error:
            raise _damaged(error) from error
        if not self.alone or self._etag is not None:
            return tables
        left = {name: known.without_idle(now_ms() + 1) for name, known in tables.items()}
        for name, known in left.items():
            for number in known.removed_since(tables[name]):
                log.warning("table %s: generation %d is removed, because its load was interrupted", name, number)
        return left

    async def _found(self) -> Record | None:
        try:
            found = await (await self._table()).one(Get(KEY, max_age_s=0))
            if isinstance(found, TableError):
                raise found
        except TableNotFound:
            found = None
        except RecordUnreadable as error:
            raise _damaged(error) from error
        except TableError as error:
            if error.retriable and not isinstance(error, StoreUnavailable):
                raise StoreUnavailable(f"the generations of tables cannot be read now: {error.detail}") from error
            if self.required or self.tables or error.retriable:
                raise
            if not self.forbidden:
                log.warning("the generations of tables cannot be read, so there are none: %s", error.detail)
            self.forbidden = True
            return None
        self.forbidden = False
        assert found is None or isinstance(found, Record)
        return found

    async def _replaced(self, name: str, after: Generations) -> bool:
        """Write the record. Return False if another process has changed it. The caller has the lock."""
        tables, started = {**self.tables, name: after}, time.monotonic()
        text, etags = msgspec.json.encode(tables), None if self._etag is None else (self._etag,)
        if len(text) > RECORD_BYTES_MAX and after.last > self.of(name).last:
            raise TooLarge("the generations of the store's tables have too many long notes, or are too many")
        put = Put(KEY, text, if_match=etags, if_absent=etags is None, ttl_s=NO_EXPIRY)
        try:
            outcome = await (await self._table(create=True)).one(put)
        except BaseException:
            self._read_at = -math.inf  # The record may have been written.
            raise
        if isinstance(outcome, Written):
            self._keep(tables, outcome.etag, started)
            return True
        self._read_at = -math.inf
        if isinstance(outcome, PreconditionFailed | Contended):
            return False
        assert isinstance(outcome, TableError)
        raise outcome

    def _keep(self, tables: AllGenerations, etag: str | None, read_at: float) -> None:
        self.tables, self._etag = tables, etag
        self._read_at = math.inf if self.alone else read_at


def _damaged(error: Exception) -> StoreMisconfigured:
    return StoreMisconfigured(f"the record with the generations of the store's tables is damaged: {error}")
