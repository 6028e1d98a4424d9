"""What the tables of a store share: the context of their policies, retry budget, and limit on the work in flight."""

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext

import msgspec

from ..core import Backend
from ..core.backend import connections_of
from ..policies import RetryBudget
from ..settings import Settings
from ..stores import PartitionedBackend, PartitionedSettings
from ..telemetry import Traces
from .admission import InFlight, InFlightLimit
from .backends import ReplicaLinks
from .stack import StackContext, StackMetrics
from .store_in_flight import StoreInFlight


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
    """What the tables of each store share, and the links to other replicas. `contexts` are by the store's name."""

    def __init__(self, settings: Settings, backends: Mapping[str, Backend], environment: Environment) -> None:
        self._settings = settings
        self._backends = backends
        self._environment = environment
        self._replicas = ReplicaLinks(settings.stores, environment.metrics.policies)
        whole = [name for name, backend in backends.items() if not isinstance(backend, PartitionedBackend)]
        allowed, limits = settings.retry_budget, environment.in_flight
        self._budgets = {name: RetryBudget(allowed.share, allowed.per_s / environment.workers) for name in whole}
        # A single store may have all the work in flight.
        shared = {} if limits is None or len(whole) < 2 else {name: StoreInFlight(limits, name) for name in backends}
        self._in_flight: dict[str, StoreInFlight] = shared
        self.contexts = {name: self._context(name) for name in backends}

    @property
    def operations(self) -> InFlightLimit | None:
        """The limit on the operations in flight in this process."""
        return None if self._environment.in_flight is None else self._environment.in_flight.operations

    def check_admission(self, store: str) -> None:
        """Raise Overloaded if a store cannot take another operation now."""
        if (in_flight := self._in_flight.get(store)) is not None:
            in_flight.check()

    def waiting(self, store: str) -> AbstractContextManager[None]:
        """Return a context within which the wait for a store counts as work in flight in it."""
        in_flight = self._in_flight.get(store)
        return nullcontext() if in_flight is None else in_flight.entered()

    def sample(self) -> None:
        """Update the gauges of each store's connections, retry budget and work in flight."""
        for in_flight in self._in_flight.values():
            in_flight.sample()
        now, metrics = time.monotonic(), self._environment.metrics
        for name, backend in self._backends.items():
            if name in self._budgets:
                metrics.policies.retry_budget.labels(name).set(self._budgets[name].remaining(now))
            if (connections := connections_of(backend)) is not None:
                for state, count in msgspec.structs.asdict(connections).items():
                    metrics.connections.labels(name, state).set(count)

    async def close(self) -> None:
        """Close the links to other replicas."""
        await self._replicas.close()

    def _context(self, store: str) -> StackContext:
        environment, settings = self._environment, self._settings.stores[store]
        parts = settings.options.partitions if isinstance(settings.options, PartitionedSettings) else ()
        return StackContext(
            metrics=environment.metrics,
            replicas=self._replicas,
            kind=settings.kind,
            remote=not self._backends[store].single_process,
            share=1 / environment.workers,
            traces=environment.traces,
            budget=self._budgets.get(store),
            in_flight=self._in_flight.get(store),
            partitions=tuple(self._context(part) for part in parts),
        )
