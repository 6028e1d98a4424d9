"""The open stores of a catalog: what the tables of each share, its metrics, and whether it can be reached."""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from .. import __version__
from ..core import Backend, StoreUnavailable, TableError
from ..policies import CallerRate, RetryBudget
from ..settings import Settings, StoreSettings
from ..stores import PartitionedSettings
from ..telemetry import Traces
from .admission import InFlight, InFlightLimit, StoreInFlight
from .table_metrics import CatalogMetrics

if TYPE_CHECKING:
    from ..policies.rate_limit.shared import SharedCredits

log = logging.getLogger(__name__)

PING_TIMEOUT_S = 2.0

CHECK_EVERY_S = 10.0
"""How often stores are checked, even if no probe or page requests it."""

RESULT_AGE_MAX_S = 2.0
"""How long a page reuses the result of a check, so that the number of viewers does not affect the load on stores."""

RESULT_WAIT_MAX_S = 0.25
"""How long a page waits for a result."""

TABLES_LOGGED_MAX = 20

Reached: TypeAlias = Mapping[str, StoreUnavailable | None]
"""Why each store cannot be reached, or None."""


class Environment(msgspec.Struct, frozen=True):
    """The parts of a process that a catalog uses. Unlike the settings, they never change.

    `workers` is the number of processes that share a table's limits. `in_flight` limits the work in flight in this
    process.
    """

    metrics: CatalogMetrics
    workers: int = 1
    in_flight: InFlight | None = None
    traces: Traces | None = None


class OpenStore(msgspec.Struct, frozen=True, eq=False):
    """An open store, and what its tables share.

    `in_flight` limits the work in flight in the store, `operations` the operations in flight in this process, and
    `caller_rate` the operations of each caller in all stores. `partitions` are those that a partitioned store has.
    """

    name: str
    kind: str
    backend: Backend
    environment: Environment
    budget: RetryBudget | None = None
    limiters: "SharedLimiters | None" = None
    in_flight: StoreInFlight | None = None
    operations: InFlightLimit | None = None
    caller_rate: CallerRate | None = None
    partitions: "tuple[OpenStore, ...]" = ()

    def waiting(self) -> AbstractContextManager[None]:
        """Return a context within which the wait for the store counts as work in flight in it."""
        return nullcontext() if self.in_flight is None else self.in_flight.entered()

    def sample(self) -> None:
        """Update the gauges of the connections, disk, retry budget and work in flight."""
        name, metrics = self.name, self.environment.metrics
        if self.in_flight is not None:
            self.in_flight.sample()
        if self.budget is not None:
            metrics.policies.retry_budget.labels(name).set(self.budget.remaining(time.monotonic()))
        if hasattr(self.backend, "connections"):
            for state, count in msgspec.structs.asdict(self.backend.connections()).items():
                metrics.connections.labels(name, state).set(count)
        if hasattr(self.backend, "disk") and (disk := self.backend.disk()) is not None:
            metrics.writes_delayed.labels(name).set(disk.writes_delayed)
            for state in ("used", "compaction_pending", "free", "size"):
                metrics.disk.labels(name, state).set(getattr(disk, state))


def open_stores(
    settings: Settings,
    backends: Mapping[str, Backend],
    environment: Environment,
    limiters: "SharedLimiters",
    caller_rate: CallerRate,
) -> dict[str, OpenStore]:
    """Return the stores of the settings, whose backends are open, by name."""
    allowed, limits = settings.retry_budget, environment.in_flight
    partitions = {
        name: store.options.partitions if isinstance(store.options, PartitionedSettings) else ()
        for name, store in settings.stores.items()
    }
    # A single store may have all the work in flight.
    shared = limits if [*partitions.values()].count(()) > 1 else None

    @cache
    def opened(name: str) -> OpenStore:
        return OpenStore(
            name,
            settings.stores[name].kind,
            backends[name],
            environment,
            None if partitions[name] else RetryBudget(allowed.share, allowed.per_s / environment.workers),
            limiters,
            None if shared is None else StoreInFlight(shared, name),
            None if limits is None else limits.operations,
            caller_rate,
            tuple(map(opened, partitions[name])),
        )

    return {name: opened(name) for name in backends}


class SharedLimiters(dict[str, "SharedCredits"]):
    """The credits that all replicas share through stores of kind redis, by the store's name.

    Each is opened, and its driver imported, when a table first names its store.
    """

    def __init__(self, settings: Mapping[str, StoreSettings]) -> None:
        super().__init__()
        self._settings = settings

    def __missing__(self, store: str) -> "SharedCredits":
        """Open the credits of a store."""
        from ..policies.rate_limit.shared import SharedCredits

        redis: Any = self._settings[store].options
        self[store] = opened = SharedCredits.open(
            redis.connection(), cluster=redis.cluster, sentinels=redis.sentinel_connections(), service=redis.service
        )
        return opened


def log_start(settings: Settings, tables: Sequence[str]) -> None:
    """Log the version and whether callers are authenticated, each store's kind and place, and the tables."""
    log.info("tableside %s, %s", __version__, "no authentication" if settings.auth is None else "with authentication")
    for name, store in settings.stores.items():
        place = getattr(store.options, "place", None)
        log.info("store %s: %s%s", name, store.kind, f", {place}" if place else "")
    names = ", ".join(islice(tables, TABLES_LOGGED_MAX)) + (", …" if len(tables) > TABLES_LOGGED_MAX else "")
    log.info("tables: %d%s", len(tables), f" ({names})" if names else "")


class Reachability:
    """Checks all backends concurrently, and logs and measures which can be reached. Concurrent calls share one check.

    Clients can request this check at any rate, and it takes connections.
    """

    def __init__(self, backends: Mapping[str, Backend], metrics: CatalogMetrics) -> None:
        self._backends = backends
        self._reachable = metrics.reachable
        self._checking: asyncio.Task[Reached] | None = None
        self._result: Reached = {}
        self._checked_at = float("-inf")

    async def run(self) -> None:
        """Check all backends regularly, until cancelled."""
        while True:
            if time.monotonic() - self._checked_at >= CHECK_EVERY_S:
                await self.check()
            await asyncio.sleep(1)

    async def check(self) -> Reached:
        """Check all backends, and return the result."""
        return await asyncio.shield(self._started())

    async def recent(self) -> Reached:
        """Return the result of the last check. Backends that have not answered yet are missing.

        A backend that does not answer does not delay the caller: a later call returns the new result.
        """
        if time.monotonic() - self._checked_at >= RESULT_AGE_MAX_S:
            await asyncio.wait([self._started()], timeout=RESULT_WAIT_MAX_S)
        return self._result

    def close(self) -> None:
        """Cancel a check in progress."""
        if self._checking is not None:
            self._checking.cancel()

    def _started(self) -> asyncio.Task[Reached]:
        if self._checking is None or self._checking.done():
            self._checking = asyncio.create_task(self._check())
        return self._checking

    async def _check(self) -> Reached:
        errors = await asyncio.gather(*map(_ping, self._backends.values()))
        before, self._result = self._result, dict(zip(self._backends, errors, strict=True))
        self._checked_at = time.monotonic()
        for name, error in self._result.items():
            self._reachable.labels(name).set(error is None)
            if error is not None and before.get(name) is None:
                log.error("store %s cannot be reached: %s", name, error.detail)
            elif error is None and before.get(name) is not None:
                log.info("store %s can be reached again", name)
        return self._result


async def _ping(backend: Backend) -> StoreUnavailable | None:
    try:
        async with asyncio.timeout(PING_TIMEOUT_S):
            await backend.ping()
    except TableError as error:  # StoreUnavailable, or for example a server that hangs until the store's own deadline
        return error if isinstance(error, StoreUnavailable) else StoreUnavailable(error.detail)
    except TimeoutError:
        return StoreUnavailable(f"no answer within {PING_TIMEOUT_S} s")
    return None
