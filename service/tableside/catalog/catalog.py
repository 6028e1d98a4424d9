"""The open tables, by name: the one place where settings become stores with policies around them."""

import asyncio
import logging
from collections.abc import Iterable, Mapping

import msgspec

from .. import stores
from ..core import Backend, StoreUnavailable, TableError, TableNotFound, TableSpec, TooLarge, gather_bounded
from ..core.backend import connections_of
from ..policies import RetryBudget
from ..settings import Fault, Settings, SettingsError, TableLocation, TableSettings
from ..stores.partitioned import PartitionedBackend, PartitionedSettings
from ..telemetry import Traces
from .admission import InFlightLimit
from .open_table import CatalogEntry
from .replica_links import ReplicaLinks
from .stack import StackContext, StackMetrics
from .table import Table

log = logging.getLogger(__name__)

AUTO_TABLES_MAX = 1000
"""How many tables `auto_create` makes."""

CONCURRENT_OPENS_MAX = 8


class Environment(msgspec.Struct, frozen=True):
    """What a catalog finds in its process: made once, while catalogs' settings may change.

    `workers` is how many processes share what a table may do; `operations` bounds what is under way in this one.
    """

    metrics: StackMetrics
    workers: int = 1
    operations: InFlightLimit | None = None
    traces: Traces | None = None


class Catalog:
    """The tables that can be asked, and the backends that hold them."""

    def __init__(self, settings: Settings, backends: Mapping[str, Backend], environment: "Environment") -> None:
        self._settings = settings
        self._backends = backends
        self._environment = environment
        self._replicas = ReplicaLinks(settings.stores, environment.metrics.cache)
        allowed = settings.retry_budget
        self._budgets = {
            name: RetryBudget(allowed.share, allowed.per_s / environment.workers)
            for name, backend in backends.items()
            if not isinstance(backend, PartitionedBackend)
        }
        self._around = {name: self._shared(name) for name in backends}
        self._entries: dict[str, CatalogEntry] = {}
        self._leaving: dict[TableLocation, asyncio.Task[None]] = {}
        self._pinging: asyncio.Task[dict[str, StoreUnavailable | None]] | None = None
        self._entries.update({name: self._entry(settings, name) for name in settings.tables})

    @classmethod
    async def open(cls, settings: Settings, environment: "Environment") -> "Catalog":
        """Open every store and table, and none if that fails.

        A store that cannot be reached now does not fail it: its tables are opened when they are first asked for. A
        table that its store has not, or has otherwise than the settings say, is a TableError that names it.
        """
        backends: dict[str, Backend] = {}
        try:
            for name, store in settings.stores.items():
                backends[name] = await stores.backend_type(store.kind).open(store.options)
            for backend in backends.values():
                if isinstance(backend, PartitionedBackend):
                    backend.compose(backends)
            catalog = cls(settings, backends, environment)
            await catalog._open_tables()
            await catalog._find_tables()
        except BaseException:
            await _close(backends.values())
            raise
        return catalog

    async def table(self, name: str) -> Table:
        """Return a table. Raise TableNotFound if there is none, StoreUnavailable if it cannot be opened now."""
        entry = self.entry(name)
        if entry.table is not None:
            return entry.table
        table = await entry.opened()
        # Whoever had it made may have given up meanwhile.
        return table if self._entries.setdefault(name, entry) is entry else await self.table(name)

    def entry(self, name: str) -> CatalogEntry:
        """Return a table and where it is. Raise TableNotFound if there is none of that name."""
        try:
            return self._entries[name]
        except KeyError:
            raise TableNotFound("no table has that name") from None

    async def spec(self, name: str) -> TableSpec:
        """Return what is known of a table, also of one that a write would make. Raise TableNotFound if neither."""
        return self._automatic(name) if self._may_be_made(name) else (await self.table(name)).spec

    async def table_to_write(self, name: str) -> Table:
        """Return a table, made now if the settings allow that."""
        if not self._may_be_made(name):
            return await self.table(name)
        if len(self._entries) - len(self._settings.tables) >= AUTO_TABLES_MAX:
            raise TooLarge(f"auto_create makes {AUTO_TABLES_MAX} tables at most")
        entry = self._add_automatic(name)
        try:
            return await entry.opened()
        except BaseException:
            if entry.table is None and self._entries.get(name) is entry:
                del self._entries[name]
            raise

    def entries(self) -> list[CatalogEntry]:
        """Return every table, by name."""
        return [self._entries[name] for name in sorted(self._entries)]

    async def ping(self) -> dict[str, StoreUnavailable | None]:
        """Ask every store whether it can be reached, once for all who want to know it meanwhile.

        Anybody may want to, as often as he likes, and asking takes connections.
        """
        if self._pinging is None or self._pinging.done():
            self._pinging = asyncio.create_task(self._ping())
        return dict(await asyncio.shield(self._pinging))

    async def _ping(self) -> dict[str, StoreUnavailable | None]:
        return dict(zip(self._backends, await asyncio.gather(*map(_pinged, self._backends.values())), strict=True))

    async def change(self, settings: Settings) -> None:
        """Make the tables those of other settings, with the same stores, and drop nothing that is under way.

        Raise SettingsError, and change nothing, if a new table cannot be opened. See `reloading` for what may differ.
        """
        old = self._settings
        added = {name: self._entry(settings, name) for name in settings.tables.keys() - old.tables.keys()}
        await _opened_for_change([*added.values()])
        self._settings = settings
        locations = frozenset[TableLocation]().union(*(entry.locations for entry in added.values()))
        for name, entry in [*self._entries.items()]:
            # A table that was made by a write is not one beside that which the settings now put in its place.
            if name in added or entry.locations & locations or name in old.tables.keys() - settings.tables.keys():
                self._leave(self._entries.pop(name))
        for name, entry in added.items():
            self._add(name, entry)
        for name in settings.tables.keys() & old.tables.keys():
            if settings.tables[name] != old.tables[name]:
                self._entries[name].change(settings.tables[name])

    def sample(self) -> None:
        """Show in the metrics what there is now of each store's connections and budget."""
        now, metrics = asyncio.get_running_loop().time(), self._environment.metrics
        for name, backend in self._backends.items():
            if name in self._budgets:
                metrics.retry.budget.labels(name).set(self._budgets[name].remaining(now))
            if (connections := connections_of(backend)) is not None:
                for state, count in msgspec.structs.asdict(connections).items():
                    metrics.connections.labels(name, state).set(count)

    async def close(self) -> None:
        """Let every table and store finish what it accepted, and close it."""
        await asyncio.gather(*(entry.close() for entry in self._entries.values()), *set(self._leaving.values()))
        await self._replicas.close()
        await _close(self._backends.values())

    async def _open_tables(self) -> None:
        await gather_bounded([_tried(entry) for entry in self.entries()], CONCURRENT_OPENS_MAX)

    async def _find_tables(self) -> None:
        """Add the tables that `auto_create` made in earlier runs."""
        default = self._settings.default_store
        if not self._settings.auto_create or default is None:
            return
        locations = self._places()
        try:
            names = await self._backends[default].tables()
        except StoreUnavailable as error:
            log.warning("store %s cannot be asked for its tables: %s", default, error.detail)
            return
        for name in names:
            if name not in self._entries and not locations & self._settings.locations(default, name):
                self._add_automatic(name)
        await self._open_tables()

    def _may_be_made(self, name: str) -> bool:
        """Whether there is no such table, and a write may make it: not where another keeps its records already."""
        settings = self._settings
        if name in self._entries or not settings.auto_create or settings.default_store is None:
            return False
        return not self._places() & settings.locations(settings.default_store, name)

    def _places(self) -> frozenset[TableLocation]:
        """Return where the tables of the settings have their records."""
        settings = self._settings
        every = (settings.locations(table.store, table.name or name) for name, table in settings.tables.items())
        return frozenset[TableLocation]().union(*every)

    def _automatic(self, name: str) -> TableSpec:
        default = self._settings.default_store or ""
        return TableSpec(name, create=True, partitions=self._settings.partitions(default))

    def _add_automatic(self, name: str) -> CatalogEntry:
        entry = self._made(self._automatic(name), TableSettings(store=self._settings.default_store or ""))
        return self._add(name, entry)

    def _add(self, name: str, entry: CatalogEntry) -> CatalogEntry:
        self._entries[name] = entry
        if before := {self._leaving[place] for place in entry.locations if place in self._leaving}:
            entry.disable_cache_until(asyncio.ensure_future(_all_of(before)))
        return entry

    def _entry(self, settings: Settings, name: str) -> CatalogEntry:
        table = settings.tables[name]
        spec = table.spec(name, settings.options.get(name))
        return self._made(msgspec.structs.replace(spec, partitions=settings.partitions(table.store)), table)

    def _made(self, spec: TableSpec, settings: TableSettings) -> CatalogEntry:
        store = settings.store
        locations = self._settings.locations(store, spec.name_in_store)
        operations = self._environment.operations
        return CatalogEntry(spec, settings, self._backends[store], self._around[store], operations, locations)

    def _leave(self, entry: CatalogEntry) -> None:
        """Let a table end by itself, at the latest when the catalog is closed."""
        task = asyncio.get_running_loop().create_task(entry.close())
        self._leaving.update(dict.fromkeys(entry.locations, task))

        def has_left(task: asyncio.Task[None]) -> None:
            for place in entry.locations:
                if self._leaving.get(place) is task:
                    del self._leaving[place]

        task.add_done_callback(has_left)

    def _shared(self, store: str) -> StackContext:
        """Return what the tables of one store have in common."""
        environment, options = self._environment, self._settings.stores[store].options
        parts = options.partitions if isinstance(options, PartitionedSettings) else ()
        return StackContext(
            metrics=environment.metrics,
            replicas=self._replicas,
            kind=self._settings.stores[store].kind,
            remote=not self._backends[store].single_process,
            share=1 / environment.workers,
            traces=environment.traces,
            budget=self._budgets.get(store),
            partitions=tuple(self._shared(part) for part in parts),
        )


async def _all_of(tasks: Iterable["asyncio.Task[None]"]) -> None:
    await asyncio.gather(*tasks)


async def _tried(entry: CatalogEntry) -> None:
    try:
        await entry.opened()
    except StoreUnavailable as error:
        log.warning("table %s is opened when it is asked for: %s", entry.spec.name, error.detail)
    except TableError as error:
        raise type(error)(f"table {entry.spec.name!r}, in store {entry.store!r}: {error.detail}") from error


async def _opened_for_change(entries: list[CatalogEntry]) -> None:
    """Open new tables, or none: what their store refuses is a fault of the settings."""
    results = await asyncio.gather(*map(_tried, entries), return_exceptions=True)
    failures = {entry.spec.name: result for entry, result in zip(entries, results, strict=True) if result is not None}
    if not failures:
        return
    await asyncio.gather(*(entry.close() for entry in entries))
    for failure in failures.values():
        if not isinstance(failure, TableError):
            raise failure
    raise SettingsError(
        [
            Fault(f"tables.{name}", failure.detail)
            for name, failure in failures.items()
            if isinstance(failure, TableError)
        ]
    )


async def _pinged(backend: Backend, timeout_s: float = 2.0) -> StoreUnavailable | None:
    try:
        async with asyncio.timeout(timeout_s):
            await backend.ping()
    except StoreUnavailable as error:
        return error
    except TableError as error:  # a server that hangs, say, for which the store had its own deadline
        return StoreUnavailable(error.detail)
    except TimeoutError:
        return StoreUnavailable(f"no answer within {timeout_s} s")
    return None


async def _close(backends: Iterable[Backend]) -> None:
    await asyncio.gather(*(backend.close() for backend in backends))
