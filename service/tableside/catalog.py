"""The open tables, by name: the one place where settings become stores with policies around them."""

import asyncio
from collections.abc import Iterable, Mapping

import msgspec
from prometheus_client import CollectorRegistry

from . import stores
from .errors import StoreUnavailable, TableNotFound, TooLarge
from .policies.measure import Measure, Metrics
from .settings import Settings, TableSettings
from .store import Backend, Store, TableSpec
from .table import Table

AUTO_TABLES_MAX = 1000
"""How many tables `auto_create` makes."""


class Entry(msgspec.Struct, frozen=True):
    """An open table, and where it is."""

    table: Table
    store: str
    kind: str


class Catalog:
    """The tables that can be asked, and the backends that hold them."""

    def __init__(self, settings: Settings, backends: Mapping[str, Backend], registry: CollectorRegistry) -> None:
        self._settings = settings
        self._backends = backends
        self._metrics = Metrics(registry)
        self._entries: dict[str, Entry] = {}
        for name, table in settings.tables.items():
            self._add(table.spec(name), table)

    @classmethod
    async def open(cls, settings: Settings, registry: CollectorRegistry) -> "Catalog":
        """Open every store. Raise StoreUnavailable if one cannot be opened, leaving none open."""
        backends: dict[str, Backend] = {}
        try:
            for name, store in settings.stores.items():
                backends[name] = await stores.backend_type(store.kind).open(store.options)
        except BaseException:
            await _close(backends.values())
            raise
        catalog = cls(settings, backends, registry)
        await catalog._find_tables()
        return catalog

    def table(self, name: str) -> Table:
        """Return a table. Raise TableNotFound if there is none of that name."""
        return self.entry(name).table

    def entry(self, name: str) -> Entry:
        """Return a table and where it is. Raise TableNotFound if there is none of that name."""
        try:
            return self._entries[name]
        except KeyError:
            raise TableNotFound("no table has that name") from None

    def spec(self, name: str) -> TableSpec:
        """Return what is known of a table, also of one that a write would make. Raise TableNotFound if neither."""
        if name in self._entries or not self._settings.auto_create:
            return self.entry(name).table.spec
        return TableSpec(name)

    def table_to_write(self, name: str) -> Table:
        """Return a table, made now if the settings allow that."""
        if name not in self._entries and self._settings.auto_create:
            if len(self._entries) - len(self._settings.tables) >= AUTO_TABLES_MAX:
                raise TooLarge(f"auto_create makes {AUTO_TABLES_MAX} tables at most")
            self._add_automatic(name)
        return self.table(name)

    def entries(self) -> list[Entry]:
        """Return every table, by name."""
        return [self._entries[name] for name in sorted(self._entries)]

    async def ping(self) -> dict[str, StoreUnavailable | None]:
        """Ask every store whether it can be reached."""
        return dict(zip(self._backends, await asyncio.gather(*map(_pinged, self._backends.values())), strict=True))

    async def close(self) -> None:
        """Let every store finish what it accepted, and close it."""
        await _close(self._backends.values())

    async def _find_tables(self) -> None:
        """Add the tables that `auto_create` made in earlier runs."""
        default = self._settings.default_store
        if self._settings.auto_create and default is not None:
            places = {(table.store, table.name or name) for name, table in self._settings.tables.items()}
            for name in await self._backends[default].tables():
                if (default, name) not in places:
                    self._add_automatic(name)

    def _add_automatic(self, name: str) -> None:
        self._add(TableSpec(name), TableSettings(store=self._settings.default_store or ""))

    def _add(self, spec: TableSpec, settings: TableSettings) -> None:
        backend = self._backends[settings.store]
        store = stack(backend.store(spec), self._metrics, spec)
        table = Table(spec, store, deadline_s=settings.deadline_s)
        self._entries[spec.name] = Entry(table, settings.store, backend.kind)


def stack(store: Store, metrics: Metrics, spec: TableSpec) -> Store:
    """Put the policies around a store, the innermost first."""
    return Measure(store, metrics, spec.name)


async def _pinged(backend: Backend, timeout_s: float = 2.0) -> StoreUnavailable | None:
    try:
        async with asyncio.timeout(timeout_s):
            await backend.ping()
    except StoreUnavailable as error:
        return error
    except TimeoutError:
        return StoreUnavailable(f"no answer within {timeout_s} s")
    return None


async def _close(backends: Iterable[Backend]) -> None:
    await asyncio.gather(*(backend.close() for backend in backends))
