"""The backends of stores: how they are opened, whether they can be reached, and the limits shared through them."""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias

from prometheus_client import Gauge

from .. import __version__, stores
from ..core import Backend, StoreUnavailable, TableError
from ..core.backend import place_of
from ..settings import Settings, StoreSettings

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

Stores: TypeAlias = Mapping[str, StoreUnavailable | None]
"""Why each store cannot be reached, or None."""

NAMES_MAX = 20
"""At most so many tables are named in the log."""


async def open_backend(name: str, store: StoreSettings) -> Backend:
    """Open a store. An error names it."""
    try:
        return await stores.backend_type(store.kind).open(store.options)
    except TableError as error:
        raise type(error)(f"store {name!r}: {error.detail}") from error


def log_start(settings: Settings, tables: Sequence[str]) -> None:
    """Log the version and whether callers are authenticated, each store's kind and place, and the tables."""
    log.info("tableside %s, %s", __version__, "no authentication" if settings.auth is None else "with authentication")
    for name, store in settings.stores.items():
        place = place_of(store.options)
        log.info("store %s: %s%s", name, store.kind, f", {place}" if place else "")
    names = ", ".join(islice(tables, NAMES_MAX)) + (", …" if len(tables) > NAMES_MAX else "")
    log.info("tables: %d%s", len(tables), f" ({names})" if names else "")


class Reachability:
    """Checks all backends concurrently, and logs and measures which can be reached. Concurrent calls share one check.

    Clients can request this check at any rate, and it takes connections.
    """

    def __init__(self, backends: Mapping[str, Backend], reachable: Gauge) -> None:
        self._backends = backends
        self._reachable = reachable
        self._checking: asyncio.Task[Stores] | None = None
        self._result: Stores = {}
        self._checked_at = float("-inf")

    async def run(self) -> None:
        """Check all backends regularly, until cancelled."""
        while True:
            if time.monotonic() - self._checked_at >= CHECK_EVERY_S:
                await self.check()
            await asyncio.sleep(1)

    async def check(self) -> Stores:
        """Check all backends, and return the result."""
        return await asyncio.shield(self._started())

    async def recent(self) -> Stores:
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

    def _started(self) -> asyncio.Task[Stores]:
        if self._checking is None or self._checking.done():
            self._checking = asyncio.create_task(self._check())
        return self._checking

    async def _check(self) -> Stores:
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
    except StoreUnavailable as error:
        return error
    except TableError as error:  # for example, a server that hangs until the store's own deadline
        return StoreUnavailable(error.detail)
    except TimeoutError:
        return StoreUnavailable(f"no answer within {PING_TIMEOUT_S} s")
    return None


class SharedLimiters:
    """The credits that all replicas share through stores of kind redis, by the store's name.

    Each limiter is opened, and its driver imported, when a table first names its store.
    """

    def __init__(self, stores: Mapping[str, StoreSettings]) -> None:
        self._stores = stores
        self._limiters: dict[str, SharedCredits] = {}

    def limiter(self, store: str) -> "SharedCredits":
        """Return the credits that all replicas share."""
        if store not in self._limiters:
            from ..policies.rate_limit.shared import SharedCredits

            redis: Any = self._stores[store].options
            self._limiters[store] = SharedCredits.open(
                redis.connection(),
                cluster=redis.cluster,
                sentinels=redis.sentinel_connections(),
                service=redis.service,
            )
        return self._limiters[store]

    async def close(self) -> None:
        """Close all limiters."""
        await asyncio.gather(*(limiter.close() for limiter in self._limiters.values()))
