"""An entry of the catalog: opens a table, replaces its policies when the settings change, and closes it."""

import asyncio
import contextlib
import logging
from typing import Any

import msgspec

from ..auth import COMPANION
from ..core import (
    Estimate,
    KeySchema,
    Scan,
    Store,
    StoreUnavailable,
    TableError,
    TableNotFound,
    TableSpec,
    Unsupported,
)
from ..core.errors import GenerationNotFound
from ..core.store import drop_records
from ..settings import Fault, SettingsError, TableLocation, TableSettings
from .open_stores import OpenStore
from .stack import Limits, Stack, build_stack
from .table import Table

log = logging.getLogger(__name__)

RELOAD_OPEN_MAX_S = 2.0
"""How long a reload waits for its new tables. Slower ones open when they are first used."""

RUNS_IN_STORE = "_ts_runs"
"""The suffix of a companion's name in the store."""

CREATE_MAX_S = 60.0
"""How long a store may take to create the table of a generation."""

RUNS_MEMORY_S = 400 * 86_400.0
"""How long a companion remembers a job after its last write."""


class CatalogEntry:
    """A table of the catalog: its spec, its settings and the locations of its records.

    `table` is None until the store could first be reached. Each generation of a table has an entry. They share
    `limits`.
    """

    def __init__(
        self,
        spec: TableSpec,
        settings: TableSettings,
        store: OpenStore,
        locations: frozenset[TableLocation] = frozenset(),
        limits: Limits | None = None,
    ) -> None:
        self.spec = spec
        self.settings = settings
        self.store = store
        self.locations = locations
        self.table: Table | None = None
        self._limits = {} if limits is None else limits
        self._stack: Stack | None = None
        self._cache_enabled: asyncio.Future[Any] | None = None
        self._opening = asyncio.Lock()
        self._closed = False
        self._runs: CatalogEntry | None = None

    @property
    def runs(self) -> "CatalogEntry":
        """Return the entry of the companion: an ordinary table with string keys in the same store."""
        if self._runs is None:
            spec = TableSpec(
                f"{self.spec.name}@{COMPANION}",
                stored_as=self.spec.name_in_store + RUNS_IN_STORE,
                ttl_s=RUNS_MEMORY_S,
                create=self.spec.create,
                partitions=self.spec.partitions,
                value_bytes_max=self.spec.value_bytes_max,
            )
            settings = TableSettings(store=self.store.name, deadline_s=self.settings.deadline_s)
            self._runs = CatalogEntry(spec, settings, self.store)
        return self._runs

    async def current(self) -> "CatalogEntry":
        """Return the entry of the current generation. Raise a TableError if it cannot be known now."""
        return self

    def known_now(self, number: int | None) -> "CatalogEntry | None":
        """Return the entry of a generation, by default of the current one, or None if `find` must look it up."""
        return self if number in (None, 1) else None

    async def find(self, number: int | None) -> "CatalogEntry":
        """Return the entry of a generation, by default of the current one. Raise GenerationNotFound."""
        raise GenerationNotFound(f"the table has no generation {number}")

    @property
    def has_generations(self) -> bool:
        """Whether the table may have more generations than its first."""
        return False

    @property
    def shown(self) -> "CatalogEntry":
        """The entry of the current generation, as far as this process knows it."""
        return self

    def of_generation(self, number: int, *, loading: bool) -> "CatalogEntry":
        """Return an entry of another generation of this table."""
        spec = msgspec.structs.replace(self.spec, generation=number, loading=loading, create=False)
        entry = CatalogEntry(spec, self.settings, self.store, self.locations, self._limits)
        entry._cache_enabled = self._cache_enabled
        return entry

    async def opened(self) -> Table:
        """Return the table. Open it if necessary. Concurrent calls wait for one opening.

        Raise the errors of `Backend.store`. Raise StoreUnavailable if opening takes longer than an operation may, or
        if the table is closed in the meantime.
        """
        if self.table is not None:
            return self.table
        try:
            async with asyncio.timeout(self.settings.deadline_s), self._opening:
                table: Table | None = self.table
                while table is None:
                    spec = self.spec
                    store = await self.store.backend.store(spec)
                    if self.spec is spec:  # else `release` has changed it in the meantime
                        table = self._open(store)
                self._check_not_closed()
                return table
        except TimeoutError:
            raise StoreUnavailable(f"table {self.spec.name!r}: its store does not answer") from None

    async def created(self, key: KeySchema) -> None:
        """Create the table with this key in its store, and open it. Raise the errors of `opened`."""
        spec = msgspec.structs.replace(self.spec, key=key, key_given=True, create=True)
        try:
            async with asyncio.timeout(CREATE_MAX_S):
                await self.store.backend.store(spec)
        except TimeoutError:
            raise StoreUnavailable(f"table {spec.name!r}: its store takes long to create a generation") from None
        await self.opened()

    async def estimate(self) -> Estimate:
        """Return about the number and the size of the records."""
        await self.opened()
        if self._stack is None or not hasattr(self._stack.store, "estimate"):
            return Estimate()
        found: Estimate = await self._stack.store.estimate()
        return found

    async def is_empty(self) -> bool:
        """Return whether the store has no records under the table's name there, or none that it finds at once."""
        try:
            store = await self.store.backend.store(msgspec.structs.replace(self.spec, create=False))
        except TableNotFound:
            return True
        return not (await store.scan(Scan(1))).records

    async def drop(self) -> None:
        """Remove the records from the store, and the table if it has one. Raise a TableError if that fails."""
        self.release()
        with contextlib.suppress(TableNotFound):
            await drop_records(await self.store.backend.store(msgspec.structs.replace(self.spec, create=False)))

    def release(self) -> None:
        """Close the policies when the operations in flight have finished. A later operation opens the table again."""
        self.spec = msgspec.structs.replace(self.spec, loading=False)
        if self._stack is not None:
            self._replace(self._stack, None)
        self.table = self._stack = None

    def change(self, settings: TableSettings, limits: Limits) -> None:
        """Put other policies, with these limits, around the same store. Later operations use them.

        Operations in flight finish with the old policies. Until then the new cache is suspended, because their writes
        could make it stale.
        """
        self.settings, self._limits = settings, limits
        if (old := self._stack) is not None:
            self._replace(old, self._wrap(old.store))

    def disable_cache_until(self, previous_closed: asyncio.Future[Any]) -> None:
        """Suspend the cache until a previous table with the same records is closed: its writes bypass this cache."""
        self._cache_enabled = previous_closed
        if self._stack is not None:
            self._replace(None, self._stack)

    async def close(self) -> None:
        """Wait for the operations in flight, and close the policies."""
        self._closed = True
        if self._runs is not None:
            await self._runs.close()
        if self._cache_enabled is not None:
            await self._cache_enabled
        if self._stack is not None:
            await self._stack.close()

    def _check_not_closed(self) -> None:
        if self._closed:
            raise StoreUnavailable(f"table {self.spec.name!r} was closed while it was being opened")

    def _open(self, store: Store) -> Table:
        self._check_not_closed()
        if store.spec.ttl_s is not None and not store.capabilities.ttl:
            raise Unsupported("ttl: its store keeps no expiry for this table, and ttl_s is set")
        self.spec = store.spec
        stack = self._wrap(store)
        if self._cache_enabled is not None:
            self._replace(None, stack)
        return stack.table

    def _wrap(self, store: Store) -> Stack:
        self._stack = stack = build_stack(store, self.settings, self.store, self._limits)
        self.table = stack.table
        return stack

    def _replace(self, old: Stack | None, new: Stack | None) -> None:
        """Close the old policies in the background, after still older ones, and suspend the new cache until then."""
        if new is not None:
            new.suspend()
        self._cache_enabled = asyncio.get_running_loop().create_task(_replaced(self._cache_enabled, old, new))


async def _replaced(earlier: asyncio.Future[Any] | None, old: Stack | None, new: Stack | None) -> None:
    if earlier is not None:
        await earlier
    if old is not None:
        await old.close()
    if new is not None:
        new.resume()


async def open_or_defer(entry: CatalogEntry) -> None:
    """Open a table. If its store cannot be reached, log that and leave the opening to the first request."""
    try:
        await (await entry.current()).opened()
    except StoreUnavailable as error:
        log.warning("table %s will be opened when it is first used: %s", entry.spec.name, error.detail)
    except TableError as error:
        raise type(error)(f"table {entry.spec.name!r}, in store {entry.store.name!r}: {error.detail}") from error


async def open_all_or_none(entries: list[CatalogEntry]) -> None:
    """Open the tables of changed settings, as far as their stores answer in time.

    If a store rejects a table, close all of them and raise SettingsError.
    """
    results = await asyncio.gather(*map(_open_in_time, entries), return_exceptions=True)
    failures = [(entry, result) for entry, result in zip(entries, results, strict=True) if result is not None]
    if not failures:
        return
    await asyncio.gather(*(entry.close() for entry in entries))
    faults = []
    for entry, failure in failures:
        if not isinstance(failure, TableError):
            raise failure
        faults.append(Fault(f"tables.{entry.spec.name}", failure.detail))
    raise SettingsError(faults)


async def _open_in_time(entry: CatalogEntry) -> None:
    try:
        async with asyncio.timeout(RELOAD_OPEN_MAX_S):
            await open_or_defer(entry)
    except TimeoutError:
        log.warning("table %s will be opened when it is first used: its store has not answered yet", entry.spec.name)
