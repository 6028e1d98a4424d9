"""The control tables of all stores, and the entries of the tables that they are."""

import asyncio
import logging
import time
from collections.abc import Collection, Mapping

import msgspec

from ..core import Backend, TableError, TableSpec
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
        self._failing = set[str]()
        whole = [name for name, backend in backends.items() if not isinstance(backend, PartitionedBackend)]
        self._controls = {name: self._control(name) for name in whole}

    def of(self, store: str) -> ControlTable | None:
        """Return the control table of a store, None if the store is partitioned."""
        return self._controls.get(store)

    def change(self, settings: Settings) -> None:
        """Apply other settings for the same stores, whose tables may need generations from now on."""
        self._settings = settings
        for store, control in self._controls.items():
            control.required = control.required or self._is_required(store)

    async def follow(self, entries: Collection[TableEntry]) -> None:
        """Read what has changed, and remove what the tables no longer need."""
        await asyncio.gather(*(self._follow(store, entries) for store in self._controls))

    async def close(self) -> None:
        """Wait for the operations in flight, and close the policies."""
        await asyncio.gather(*(control.close() for control in self._controls.values()))
        await asyncio.gather(*(entry.close() for entry in self._entries.values()))

    async def _follow(self, store: str, entries: Collection[TableEntry]) -> None:
        control = self._controls[store]
        try:
            await control.read_since(time.monotonic())
            for entry in entries:
                if entry.store == store and entry.spec.first_name in control.tables:
                    await entry.maintain()
        except TableError as error:
            if store not in self._failing:
                log.warning("the generations of the tables in store %s cannot be followed: %s", store, error.detail)
            self._failing.add(store)
        except Exception:  # an unexpected error in one store must not end the work for all
            log.exception("the generations of the tables in store %s cannot be followed", store)
        else:
            self._failing.discard(store)

    def _control(self, store: str) -> ControlTable:
        async def opened(create: bool) -> Table:
            entry = self._entries.get(store)
            if entry is None or (create and not entry.spec.create):
                entry = self._entries[store] = self._entry(store, create=create)
            return await entry.opened()

        alone = self._backends[store].single_process
        return ControlTable(opened, alone=alone, required=self._is_required(store))

    def _is_required(self, store: str) -> bool:
        settings = self._settings
        automatic = settings.auto_create and settings.default_store == store
        return automatic or any(one.generations and one.store == store for one in settings.tables.values())

    def _entry(self, store: str, *, create: bool) -> CatalogEntry:
        spec, settings = TableSpec(CONTROL, create=create), TableSettings(store=store)
        # The share of the store must not keep the service from learning which generation is current.
        context = msgspec.structs.replace(self._contexts[store], in_flight=None)
        return CatalogEntry(spec, settings, self._backends[store], context, None, frozenset())
