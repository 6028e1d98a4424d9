"""An entry of the catalog: opens a table, replaces its policies when the settings change, and closes it."""

import asyncio
import contextlib
import logging

import msgspec

from ..auth import COMPANION
from ..core import (
    Backend,
    Estimate,
    GenerationNotFound,
    KeySchema,
    Scan,
    Store,
    StoreUnavailable,
    TableError,
    TableNotFound,
    TableSpec,
    Unsupported,
    drop_records,
    size_estimate,
)
from ..settings import Fault, SettingsError, TableLocation, TableSettings
from .admission import InFlightLimit
from .stack import SharedLimits, Stack, StackContext, build_stack
from .table import Table
from .table_metrics import TableMetrics

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

    `table` is None until the store could first be reached. `runs` is the entry of the table's companion. Each
    generation of a table has an entry. They share `limits`.
    """

    def __init__(
        self,
        spec: TableSpec,
        settings: TableSettings,
        backend: Backend,
        context: StackContext,
        operations: InFlightLimit | None,
        locations: frozenset[TableLocation],
        limits: SharedLimits | None = None,
    ) -> None:
        self.spec = spec
        self.settings = settings
        self.locations = locations
        self.table: Table | None = None
        self._backend = backend
        self._context = context
        self._operations = operations
        self._limits = limits or SharedLimits()
        self._store: Store | None = None
        self._stack: Stack | None = None
        self._cache_enabled: asyncio.Task[None] | None = None
        self._opening = asyncio.Lock()
        self._closed = False
        self._runs: CatalogEntry | None = None

    @property
    def store(self) -> str:
        """Return the name of the table's store."""
        return self.settings.store

    @property
    def kind(self) -> str:
        """Return the kind of the table's store."""
        return self._context.kind

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
            settings = TableSettings(store=self.store, deadline_s=self.settings.deadline_s)
            self._runs = CatalogEntry(spec, settings, self._backend, self._context, self._operations, frozenset())
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
        """The same, as far as this process knows it."""
        return self

    def of_generation(self, number: int, *, loading: bool) -> "CatalogEntry":
        """Return an entry of another generation of this table."""
        spec = msgspec.structs.replace(self.spec, generation=number, loading=loading, create=False)
        parts = self.settings, self._backend, self._context, self._operations, self.locations, self._limits
        entry = CatalogEntry(spec, *parts)
        entry._cache_enabled = self._cache_enabled
        return entry

    async def opened(self) -> Table:
        """Return the table. Open it if necessary. Concurrent calls wait for one opening.

        Raise the errors of `Backend.store`. Raise StoreUnavailable if opening takes longer than an operation may, or
        if the table is closed in the meantime.
        """
        if self.table is None:
            try:
                async with asyncio.timeout(self.settings.deadline_s), self._opening:
                    if self.table is None:
                        self._open(await self._open_store())
                    self._check_not_closed()
            except TimeoutError:
                raise StoreUnavailable(f"table {self.spec.name!r}: its store does not answer") from None
        assert self.table is not None
        return self.table

    async def created(self, key: KeySchema) -> None:
        """Create the table with this key in its store, and open it. Raise the errors of `opened`."""
        spec = msgspec.structs.replace(self.spec, key=key, key_given=True, create=True)
        try:
            async with asyncio.timeout(CREATE_MAX_S):
                await self._backend.store(spec)
        except TimeoutError:
            raise StoreUnavailable(f"table {spec.name!r}: its store takes long to create a generation") from None
        await self.opened()

    async def estimate(self) -> Estimate:
        """Return about the number and the size of the records."""
        await self.opened()
        return Estimate() if self._store is None else await size_estimate(self._store)

    async def is_empty(self) -> bool:
        """Return whether the store has no records under the table's name there, or none that it finds at once."""
        try:
            store = await self._backend.store(msgspec.structs.replace(self.spec, create=False))
        except TableNotFound:
            return True
        return not (await store.scan(Scan(1))).records

    async def drop(self) -> None:
        """Remove the records from the store, and the table if it has one. Raise a TableError if that fails."""
        self.release()
        with contextlib.suppress(TableNotFound):
            await drop_records(await self._backend.store(msgspec.structs.replace(self.spec, create=False)))

    def release(self, *, loading: bool = False) -> None:
        """Close the policies when the operations in flight have finished. A later operation opens the table again."""
        self.spec = msgspec.structs.replace(self.spec, loading=loading)
        if self.table is not None and self._stack is not None:
            closing = _close_after(self._cache_enabled, self.table, self._stack)
            self._cache_enabled = asyncio.get_running_loop().create_task(closing)
        self.table = self._stack = self._store = None

    def change(self, settings: TableSettings, limits: SharedLimits | None = None) -> None:
        """Put other policies around the same store. Later operations use them.

        Operations in flight finish with the old policies. Until then the new cache is suspended, because their writes
        could make it stale.
        """
        old_table, old = self.table, self._stack
        self.settings, self._limits = settings, limits or SharedLimits()
        if old_table is None or old is None or self._store is None:
            return
        new = self._wrap(self._store)
        new.suspend()
        replaced = _close_replaced(self._cache_enabled, old_table, old, new)
        self._cache_enabled = asyncio.get_running_loop().create_task(replaced)

    def disable_cache_until(self, previous_closed: "asyncio.Task[None]") -> None:
        """Suspend the cache until a previous table with the same records is closed: its writes bypass this cache."""
        self._cache_enabled = previous_closed
        if self._stack is not None:
            self._resume_after(previous_closed, self._stack)

    async def close(self) -> None:
        """Wait for the operations in flight, and close the policies."""
        self._closed = True
        if self._runs is not None:
            await self._runs.close()
        if self._cache_enabled is not None:
            await self._cache_enabled
        if self.table is not None and self._stack is not None:
            await _close_when_idle(self.table, self._stack)

    def _check_not_closed(self) -> None:
        if self._closed:
            raise StoreUnavailable(f"table {self.spec.name!r} was closed while it was being opened")

    async def _open_store(self) -> Store:
        """Open the store, again if `release` has changed the spec in the meantime."""
        while True:
            spec = self.spec
            store = await self._backend.store(spec)
            if self.spec is spec:
                return store

    def _open(self, store: Store) -> None:
        self._check_not_closed()
        if store.spec.ttl_s is not None and not store.capabilities.ttl:
            raise Unsupported("ttl: its store keeps no expiry for this table, and ttl_s is set")
        self.spec = store.spec
        self._store = store
        policies = self._wrap(store)
        if self._cache_enabled is not None:
            self._resume_after(self._cache_enabled, policies)

    def _resume_after(self, previous_closed: "asyncio.Task[None]", policies: Stack) -> None:
        policies.suspend()
        resumed = _resume_when_closed(previous_closed, policies)
        self._cache_enabled = asyncio.get_running_loop().create_task(resumed)

    def _wrap(self, store: Store) -> Stack:
        self._stack = build_stack(store, self.settings, self._context, self._limits)
        self.table = Table(
            self._stack.top,
            deadline_s=self.settings.deadline_s,
            metrics=TableMetrics(self._context.metrics.operations, self.spec.name),
            operations=self._operations,
            in_store=None if self.spec.partitions else self._context.in_flight,
            caller_rate=self._context.caller_rate,
        )
        return self._stack


async def _close_replaced(earlier: "asyncio.Task[None] | None", table: Table, old: Stack, new: Stack) -> None:
    """Close replaced policies, the oldest first. Then resume the new cache."""
    await _close_after(earlier, table, old)
    new.resume()


async def _close_after(earlier: "asyncio.Task[None] | None", table: Table, policies: Stack) -> None:
    if earlier is not None:
        await earlier
    await _close_when_idle(table, policies)


async def _resume_when_closed(previous_closed: "asyncio.Task[None]", policies: Stack) -> None:
    await previous_closed
    policies.resume()


async def _close_when_idle(table: Table, policies: Stack) -> None:
    """Close the policies when no operation is in flight."""
    await table.drain()
    await policies.close()


async def open_or_defer(entry: CatalogEntry) -> None:
    """Open a table. If its store cannot be reached, log that and leave the opening to the first request."""
    try:
        await (await entry.current()).opened()
    except StoreUnavailable as error:
        log.warning("table %s will be opened when it is first used: %s", entry.spec.name, error.detail)
    except TableError as error:
        raise type(error)(f"table {entry.spec.name!r}, in store {entry.store!r}: {error.detail}") from error


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
