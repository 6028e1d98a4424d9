"""The catalog: opens the stores and tables of the settings, and finds tables by name."""

import asyncio
import logging
import re
from collections.abc import Mapping

import msgspec

from .. import stores
from ..auth import COMPANION
from ..core import Backend, TableSpec, gather_bounded
from ..core.errors import (
    GenerationSealed,
    InvalidOperation,
    MalformedRequest,
    StoreUnavailable,
    TableError,
    TableNotFound,
    TooLarge,
    Unsupported,
)
from ..core.store import GENERATION_IN_STORE
from ..policies import CallerRate
from ..settings import Settings, TableLocation, TableSettings
from .control_table import CONTROL, ControlTable
from .entry import CatalogEntry
from .open_stores import Environment, Reachability, Reached, SharedLimiters, open_stores
from .table import Table
from .table_entry import RUNS_IN_STORE, TableEntry, open_all_or_none, open_or_defer

log = logging.getLogger(__name__)

AUTO_TABLES_MAX = 1000
"""Maximum number of tables that `auto_create` creates."""

CONCURRENT_OPENS_MAX = 8

FOLLOW_EVERY_S = 1.0
"""How often a process reads the control tables of its stores."""


class Catalog:
    """The tables of the service, and the backends of their stores. `reachability` checks the stores."""

    def __init__(self, settings: Settings, backends: Mapping[str, Backend], environment: Environment) -> None:
        self.reachability = Reachability(backends, environment.metrics)
        self._settings = settings
        self._backends = backends
        self._limiters = SharedLimiters(settings.stores)
        self._caller_rate = CallerRate(1 / environment.workers, environment.metrics.policies, environment.traces)
        self._caller_rate.change(settings.limits.caller_rate_per_s)
        self._stores = open_stores(settings, backends, environment, self._limiters, self._caller_rate)
        self._controls = {
            name: ControlTable(store, required=_needs_generations(settings, name))
            for name, store in self._stores.items()
        }
        self._entries = {name: self._new_entry(settings, name) for name in settings.tables}
        self._closing: dict[TableLocation, asyncio.Task[None]] = {}

    @classmethod
    async def open(cls, settings: Settings, environment: Environment) -> "Catalog":
        """Open every store and table. If that fails, close all of them.

        An unreachable store is not a failure: its tables are opened when they are first used. If a table is missing
        from its store, or differs from the settings, raise a TableError that names it.
        """
        backends: dict[str, Backend] = {}
        try:
            for name, store in settings.stores.items():
                try:
                    backends[name] = await stores.backend_type(store.kind).open(store.options)
                except TableError as error:
                    raise type(error)(f"store {name!r}: {error.detail}") from error
            for backend in backends.values():
                if isinstance(backend, stores.PartitionedBackend):
                    backend.compose(backends)
            catalog = cls(settings, backends, environment)
            await catalog._open_tables()
            await catalog._find_tables()
        except BaseException:
            await asyncio.gather(*(backend.close() for backend in backends.values()))
            raise
        return catalog

    async def table(self, name: str, generation: int | None = None) -> Table:
        """Return a table, in its current generation if neither the name nor `generation` chooses one.

        Raise TableNotFound or GenerationNotFound if there is none, Unsupported if the name chooses one and the table
        has none, MalformedRequest if name and `generation` differ. Raise StoreUnavailable if it cannot be opened now,
        Overloaded if too many calls wait for the table's store.
        """
        if (known := self._entries.get(name)) is not None:
            entry = known.known_now(generation)
            if entry is not None and entry.table is not None:
                return entry.table
        await self._discover(name)
        base, table_name, suffix = self._named(name)
        is_number = suffix not in ("", COMPANION)
        if is_number and generation not in (None, int(suffix)):
            raise MalformedRequest("the cursor or split belongs to another generation of the table")
        number = int(suffix) if is_number else generation
        entry = base.runs if suffix == COMPANION else base.known_now(number)
        if entry is None or (table := entry.table) is None:
            with base.store.waiting():
                entry = entry or await base.find(number)
                table = await entry.opened()
            # The write that created the entry may have failed or been cancelled, and removed it from the catalog.
            if self._entries.setdefault(table_name, base) is not base:
                return await self.table(name, generation)
        if is_number and not base.has_generations:
            raise Unsupported("generations: the configuration of the table needs `generations: true`")
        return table

    def entry(self, name: str) -> CatalogEntry:
        """Return the entry of a table, of its companion or of one generation, as far as they are known.

        Raise TableNotFound if no table has this name, GenerationNotFound if the table has no such generation.
        """
        base, table_name, suffix = self._named(name)
        if suffix == COMPANION:
            return base.runs
        return self._generations(table_name).known_entry(int(suffix)) if suffix else base.shown

    async def generations(self, name: str, *, create: bool = False) -> TableEntry:
        """Return the generations of a table. With `create`, create the table if the settings allow that.

        Raise TableNotFound, or Unsupported if it cannot have any.
        """
        await self._discover(name)
        if create and self._can_create(name):
            await self.table_to_write(name)
        return self._generations(name)

    def _generations(self, name: str) -> TableEntry:
        base, _, suffix = self._named(name)
        if suffix:
            raise InvalidOperation("only a table has generations: its name in the path ends before the @")
        if base.spec.partitions:
            raise Unsupported("generations: a partitioned table has none")
        return base

    def sealed(self, name: str) -> GenerationSealed | None:
        """Return the error of writes to a table, if its name chooses a generation that does not load."""
        if "@" not in name:
            return None
        base, _, suffix = self._named(name)
        return None if suffix == COMPANION or base.spec.partitions else base.sealed(int(suffix))

    async def table_or_spec(self, name: str) -> Table | TableSpec:
        """Return a table, or the spec of one that a write would create. Raise TableNotFound if there is neither."""
        if name not in self._entries:
            await self._discover(name)
            if self._can_create(name):
                return self._new_entry(self._settings, name).spec
        return await self.table(name)

    async def table_to_write(self, name: str) -> Table:
        """Return a table. Create it if the settings allow that."""
        if not self._can_create(name):
            return await self.table(name)
        base, _, suffix = name.partition("@")
        if suffix:
            await self.table_to_write(base)
            return await self.table(name)
        if len(self._entries) - len(self._settings.tables) >= AUTO_TABLES_MAX:
            raise TooLarge(f"auto_create creates at most {AUTO_TABLES_MAX} tables")
        entry = self._add(name, self._new_entry(self._settings, name))
        try:
            with entry.store.waiting():
                return await (await entry.current()).opened()
        except BaseException:
            if entry.table is None and self._entries.get(name) is entry:
                del self._entries[name]
            raise

    def check_admission(self, name: str) -> None:
        """Raise Overloaded if the store of a table cannot take another operation now.

        Raise TableNotFound if no table has this name and no write can create it.
        """
        if name not in self._entries and self._can_create(name.partition("@")[0]):
            return
        if (in_flight := self._named(name)[0].store.in_flight) is not None:
            in_flight.check()

    def entries(self) -> list[CatalogEntry]:
        """Return the entries of all tables, of the current generation of each, sorted by name."""
        return [self._entries[name].shown for name in sorted(self._entries)]

    async def follow_generations(self) -> None:
        """Read changes of generations every second, and remove what is no longer needed, until cancelled."""
        while True:
            await asyncio.sleep(FOLLOW_EVERY_S)
            await asyncio.gather(*(self._follow(store, control) for store, control in self._controls.items()))

    def can_answer(self, reached: Reached) -> bool:
        """Return whether any operation may succeed: if a store can be reached, or a table has a cache."""
        return None in reached.values() or any(entry.settings.cache is not None for entry in self._entries.values())

    async def change(self, settings: Settings) -> None:
        """Apply other settings for the same stores. Operations in flight finish.

        Raise SettingsError, and change nothing, if a new table cannot be opened. `reloader` lists the settings that
        may not differ.
        """
        old = self._settings
        added = {name: self._new_entry(settings, name) for name in settings.tables.keys() - old.tables.keys()}
        await open_all_or_none([*added.values()])
        self._settings = settings
        self._caller_rate.change(settings.limits.caller_rate_per_s)
        for store, control in self._controls.items():
            control.required = control.required or _needs_generations(settings, store)
        locations = frozenset[TableLocation]().union(*(entry.locations for entry in added.values()))
        for name, entry in [*self._entries.items()]:
            # A new table of the settings replaces one that a write created at the same location.
            if name in added or entry.locations & locations or name in old.tables.keys() - settings.tables.keys():
                self._close_later(self._entries.pop(name))
        for name, entry in added.items():
            self._add(name, entry)
        for name in settings.tables.keys() & old.tables.keys():
            if settings.tables[name] != old.tables[name]:
                self._entries[name].change(settings.tables[name], {})

    def sample(self) -> None:
        """Update the gauges of generations, and of each store's connections, retry budget and work in flight."""
        for entry in self._entries.values():
            entry.sample()
        for store in self._stores.values():
            store.sample()

    async def close(self) -> None:
        """Wait for the operations in flight, and close every table and store."""
        await asyncio.gather(*(entry.close() for entry in self._entries.values()), *set(self._closing.values()))
        await asyncio.gather(*(control.close() for control in self._controls.values()))
        self.reachability.close()
        await asyncio.gather(*(limiter.close() for limiter in self._limiters.values()))
        await asyncio.gather(*(backend.close() for backend in self._backends.values()))

    async def _discover(self, name: str) -> None:
        """Add a table that another process created by `auto_create`, if it has had more than one generation."""
        base, _, suffix = name.partition("@")
        store = self._settings.default_store
        if base in self._entries or store is None or not self._can_create(base):
            return
        control = self._controls[store]
        if suffix or control.known(base) is None:
            with self._stores[store].waiting():
                # Another process may just have created the generation that the name chooses.
                await (control.refresh(0) if suffix else control.refresh())
        if base in control.tables and base not in self._entries:
            self._add(base, self._new_entry(self._settings, base))

    def _named(self, name: str) -> tuple[TableEntry, str, str]:
        """Return the entry and the name of a table, and what follows an @ in the name. Raise TableNotFound."""
        if (entry := self._entries.get(name)) is not None:
            return entry, name, ""
        base, _, suffix = name.partition("@")
        if (entry := self._entries.get(base)) is None:
            raise TableNotFound("no table has that name")
        return entry, base, suffix

    async def _follow(self, store: str, control: ControlTable) -> None:
        """Read the generations of a store's tables, and remove what the tables no longer need."""
        try:
            await control.refresh(0)
            for entry in [*self._entries.values()]:
                if entry.store.name == store:
                    await entry.maintain()
        except TableError as error:
            if not control.failing:
                log.warning("the generations of the tables in store %s cannot be followed: %s", store, error.detail)
            control.failing = True
        except Exception:  # an unexpected error in one store must not end the work for all
            log.exception("the generations of the tables in store %s cannot be followed", store)
        else:
            control.failing = False

    async def _open_tables(self) -> None:
        entries = [self._entries[name] for name in sorted(self._entries)]
        await gather_bounded([open_or_defer(entry) for entry in entries], CONCURRENT_OPENS_MAX)

    async def _find_tables(self) -> None:
        """Add the tables that `auto_create` created in earlier runs."""
        default = self._settings.default_store
        if not self._settings.auto_create or default is None:
            return
        locations = self._locations()
        try:
            names = {*await self._backends[default].tables()}
            await self._controls[default].refresh()
        except StoreUnavailable as error:
            log.warning("cannot list the tables of store %s: %s", default, error.detail)
            return
        for name in (names | self._controls[default].tables.keys()) - self._entries.keys() - {CONTROL}:
            is_table = not name.endswith(RUNS_IN_STORE) and not self._is_generation(name)
            if is_table and not locations & self._settings.locations(default, name):
                self._add(name, self._new_entry(self._settings, name))
        await self._open_tables()

    def _can_create(self, name: str) -> bool:
        """Return whether a write may create the table: it does not exist, and no other table uses its location."""
        settings, (base, _, suffix) = self._settings, name.partition("@")
        if {name, base} & self._entries.keys() or not settings.auto_create or settings.default_store is None:
            return False
        if suffix not in ("", COMPANION) or self._is_generation(base):
            return False
        return not self._locations() & settings.locations(settings.default_store, base)

    def _is_generation(self, name: str) -> bool:
        """Return whether this is, or was, the name of a generation in the default store."""
        control = self._controls.get(self._settings.default_store or "")
        match = re.fullmatch(rf"(.+){GENERATION_IN_STORE}([0-9]{{1,18}})", name)
        return bool(control and match and 1 < int(match[2]) <= control.of(match[1]).last)

    def _locations(self) -> frozenset[TableLocation]:
        """Return the locations of the records of all tables in the settings."""
        settings = self._settings
        every = (settings.locations(table.store, table.name or name) for name, table in settings.tables.items())
        return frozenset[TableLocation]().union(*every)

    def _new_entry(self, settings: Settings, name: str) -> TableEntry:
        """Return an entry of a table of the settings, or of one that a write creates."""
        created = TableSettings(store=settings.default_store or "", create=True, generations=True)
        table = settings.tables.get(name, created)
        store = self._stores[table.store]
        spec = msgspec.structs.replace(
            table.spec(name, settings.options.get(name)),
            partitions=len(store.partitions),
            value_bytes_max=settings.limits.value_bytes_max,
        )
        locations = settings.locations(store.name, spec.name_in_store)
        return TableEntry(self._controls[store.name], spec, table, store, locations)

    def _add(self, name: str, entry: TableEntry) -> TableEntry:
        self._entries[name] = entry
        if before := {self._closing[location] for location in entry.locations if location in self._closing}:
            entry.disable_cache_until(asyncio.gather(*before))
        return entry

    def _close_later(self, entry: CatalogEntry) -> None:
        """Close a table in the background, when its operations in flight have finished."""
        task = asyncio.get_running_loop().create_task(entry.close())
        self._closing.update(dict.fromkeys(entry.locations, task))

        def on_closed(closed: asyncio.Task[None]) -> None:
            self._closing = {location: other for location, other in self._closing.items() if other is not closed}

        task.add_done_callback(on_closed)


def _needs_generations(settings: Settings, store: str) -> bool:
    """Return whether a table of a store, or one that a write may create there, has generations."""
    automatic = settings.auto_create and settings.default_store == store
    return automatic or any(one.generations and one.store == store for one in settings.tables.values())
