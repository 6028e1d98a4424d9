"""What the tables of a store share: the context of their policies, retry budget, limits on the work in flight and on
callers, and the control table with their generations.
"""

import asyncio
import logging
import time
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager, nullcontext

import msgspec

from ..core import Backend, TableError, TableSpec
from ..core.backend import connections_of, disk_of
from ..policies import CallerRate, RetryBudget
from ..settings import Settings, TableSettings
from ..stores import PartitionedBackend, PartitionedSettings
from ..telemetry import Traces
from .admission import InFlight, InFlightLimit, StoreInFlight
from .backends import SharedLimiters
from .control_table import ControlTable
from .entry import CatalogEntry
from .stack import StackContext, StackMetrics
from .table import Table
from .table_entry import TableEntry

log = logging.getLogger(__name__)


class Environment(msgspec.Struct, frozen=True):
    """The parts of a process that a catalog uses. Unlike the settings, they never change.

    `workers` is the number of processes that share a table's limits. `in_flight` limits the work in flight in this
    process.
    """

    metrics: StackMetrics
    workers: int = 1
    in_flight: InFlight | None = None
    traces: Traces | None = None


class StoreShares:
    """What the tables of each store share. `contexts` are by the store's name."""

    def __init__(self, settings: Settings, backends: Mapping[str, Backend], environment: Environment) -> None:
        self._settings = settings
        self._backends = backends
        self._environment = environment
        self._limiters = SharedLimiters(settings.stores)
        whole = [name for name, backend in backends.items() if not isinstance(backend, PartitionedBackend)]
        allowed, limits = settings.retry_budget, environment.in_flight
        self._budgets = {name: RetryBudget(allowed.share, allowed.per_s / environment.workers) for name in whole}
        # A single store may have all the work in flight.
        shared = {} if limits is None or len(whole) < 2 else {name: StoreInFlight(limits, name) for name in backends}
        self._in_flight: dict[str, StoreInFlight] = shared
        self._caller_rate = CallerRate(1 / environment.workers, environment.metrics.policies, environment.traces)
        self.change(settings)
        self.contexts = {name: self._context(name) for name in backends}

    @property
    def operations(self) -> InFlightLimit | None:
        """The limit on the operations in flight in this process."""
        return None if self._environment.in_flight is None else self._environment.in_flight.operations

    def change(self, settings: Settings) -> None:
        """Apply other settings for the same stores."""
        self._caller_rate.change(settings.limits.caller_rate_per_s)

    def check_admission(self, store: str) -> None:
        """Raise Overloaded if a store cannot take another operation now."""
        if (in_flight := self._in_flight.get(store)) is not None:
            in_flight.check()

    def waiting(self, store: str) -> AbstractContextManager[None]:
        """Return a context within which the wait for a store counts as work in flight in it."""
        in_flight = self._in_flight.get(store)
        return nullcontext() if in_flight is None else in_flight.entered()

    def sample(self) -> None:
        """Update the gauges of each store's connections, disk, retry budget and work in flight."""
        for in_flight in self._in_flight.values():
            in_flight.sample()
        now, metrics = time.monotonic(), self._environment.metrics
        for name, backend in self._backends.items():
            if name in self._budgets:
                metrics.policies.retry_budget.labels(name).set(self._budgets[name].remaining(now))
            if (connections := connections_of(backend)) is not None:
                for state, count in msgspec.structs.asdict(connections).items():
                    metrics.connections.labels(name, state).set(count)
            if (disk := disk_of(backend)) is not None:
                metrics.writes_delayed.labels(name).set(disk.writes_delayed)
                for state in ("used", "compaction_pending", "free", "size"):
                    metrics.disk.labels(name, state).set(getattr(disk, state))

    async def close(self) -> None:
        """Close the connections of shared limits."""
        await self._limiters.close()

    def _context(self, store: str) -> StackContext:
        environment, settings = self._environment, self._settings.stores[store]
        parts = settings.options.partitions if isinstance(settings.options, PartitionedSettings) else ()
        return StackContext(
            metrics=environment.metrics,
            limiters=self._limiters,
            kind=settings.kind,
            remote=not self._backends[store].single_process,
            share=1 / environment.workers,
            traces=environment.traces,
            budget=self._budgets.get(store),
            in_flight=self._in_flight.get(store),
            caller_rate=self._caller_rate,
            partitions=tuple(self._context(part) for part in parts),
        )


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
