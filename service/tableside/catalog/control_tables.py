"""The control tables of all stores, and the entries of the tables that they are."""

import asyncio
import logging
import time
from collections.abc import Collection, Mapping
from contextlib import suppress

from ..core import Backend, DeadlineExceeded, StoreUnavailable, TableError, TableSpec
from ..settings import Settings, TableSettings
from ..stores import PartitionedBackend
from .control_table import ControlTable
from .entry import CatalogEntry
from .stack import StackContext
from .table import Table
from .table_entry import TableEntry

log = logging.getLogger(__name__)

CONTROL = "_ts_generations"
"""The name of a control table in its store."""


class ControlTables:
    """A control table for each store. Partitioned stores have none."""

    def __init__(
        self, settings: Settings, backends: Mapping[str, Backend], contexts: Mapping[str, StackContext]
    ) -> None:
        self._settings = settings
        self._backends = backends
        self._contexts = contexts
        self._entries: dict[str, CatalogEntry] = {}
        whole = [name for name, backend in backends.items() if not isinstance(backend, PartitionedBackend)]
        self._controls = {name: self._control(name) for name in whole}

    def of(self, store: str) -> ControlTable | None:
        """Return the control table of a store, None if the store is partitioned."""
        return self._controls.get(store)

    async def read(self) -> None:
        """Read the generations in all stores that can be reached. What was loading in this process is removed."""
        for control in self._controls.values():
            with suppress(StoreUnavailable, DeadlineExceeded):
                await control.read_since(time.monotonic())
                await control.interrupt_loading()

    async def follow(self, entries: Collection[TableEntry]) -> None:
        """Read what has changed, and remove what the tables no longer need."""
        await asyncio.gather(*(self._follow(store, entries) for store in self._controls))

    async def close(self) -> None:
        """Wait for the operations in flight, and close the policies."""
        await asyncio.gather(*(entry.close() for entry in self._entries.values()))

    async def _follow(self, store: str, entries: Collection[TableEntry]) -> None:
        control = self._controls[store]
        try:
            if control.required or control.tables:
                await control.read_since(time.monotonic())
            for entry in entries:
                if entry.store == store and entry.spec.first_name in control.tables:
                    await entry.maintain()
        except TableError as error:
            log.info("the generations of the tables in store %s are maintained later: %s", store, error.detail)

    def _control(self, store: str) -> ControlTable:
        settings = self._settings

        async def opened(create: bool) -> Table:
            entry = self._entries.get(store)
            if entry is None or (create and not entry.spec.create):
                entry = self._entries[store] = self._entry(store, create=create)
            return await entry.opened()

        automatic = settings.auto_create and settings.default_store == store
        required = automatic or any(one.generations and one.store == store for one in settings.tables.values())
        return ControlTable(opened, alone=self._backends[store].single_process, required=required)

    def _entry(self, store: str, *, create: bool) -> CatalogEntry:
        spec, settings = TableSpec(CONTROL, create=create), TableSettings(store=store)
        return CatalogEntry(spec, settings, self._backends[store], self._contexts[store], None, frozenset())
