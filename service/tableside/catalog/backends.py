"""The backends of stores: how they are opened, whether they can be reached, and links between replicas through them."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from .. import stores
from ..core import Backend, StoreUnavailable, TableError
from ..core.backend import place_of
from ..policies import cache
from ..settings import Settings, StoreSettings

if TYPE_CHECKING:
    from ..policies.cache.invalidation.channel import Channel
    from ..policies.rate_limit.shared import SharedCredits

log = logging.getLogger(__name__)

PING_TIMEOUT_S = 2.0

NAMES_MAX = 20
"""At most so many tables are named in the log."""


async def open_backend(name: str, store: StoreSettings) -> Backend:
    """Open a store. An error names it."""
    try:
        return await stores.backend_type(store.kind).open(store.options)
    except TableError as error:
        raise type(error)(f"store {name!r}: {error.detail}") from error


def log_start(settings: Settings, tables: Sequence[str]) -> None:
    """Log the kind and place of each store, and the number and names of the tables."""
    for name, store in settings.stores.items():
        place = place_of(store.options)
        log.info("store %s: %s%s", name, store.kind, f", {place}" if place else "")
    names = ", ".join(islice(tables, NAMES_MAX)) + (", …" if len(tables) > NAMES_MAX else "")
    log.info("tables: %d%s", len(tables), f" ({names})" if names else "")


class Reachability:
    """Checks all backends concurrently. Concurrent calls share one check.

    Clients can request this check at any rate, and it takes connections.
    """

    def __init__(self, backends: Mapping[str, Backend]) -> None:
        self._backends = backends
        self._checking: asyncio.Task[dict[str, StoreUnavailable | None]] | None = None

    async def check(self) -> dict[str, StoreUnavailable | None]:
        """Return for each backend why it cannot be reached, or None."""
        if self._checking is None or self._checking.done():
            self._checking = asyncio.create_task(self._check())
        return dict(await asyncio.shield(self._checking))

    async def _check(self) -> dict[str, StoreUnavailable | None]:
        return dict(zip(self._backends, await asyncio.gather(*map(_ping, self._backends.values())), strict=True))


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


class ReplicaLinks:
    """Links to other replicas through stores of kind redis: cache invalidation channels and shared rate limits.

    Each link is opened, and its driver imported, when a table first names its store.
    """

    def __init__(self, stores: Mapping[str, StoreSettings], caches: cache.CacheMetrics) -> None:
        self._stores = stores
        self._caches = caches
        self._channels: dict[str, Channel] = {}
        self._limiters: dict[str, SharedCredits] = {}

    def channel(self, store: str) -> "Channel":
        """Return the channel where caches publish the keys that were written."""
        if store not in self._channels:
            from ..policies.cache.invalidation.channel import Channel

            redis = self._redis(store)
            self._channels[store] = Channel(
                redis.connection(),
                store=store,
                cluster=redis.cluster,
                connect_timeout_s=redis.connect_timeout_s,
                address=redis.primary if redis.service else None,
                metrics=self._caches,
            )
        return self._channels[store]

    def limiter(self, store: str) -> "SharedCredits":
        """Return the credits that all replicas share."""
        if store not in self._limiters:
            from ..policies.rate_limit.shared import SharedCredits

            redis = self._redis(store)
            self._limiters[store] = SharedCredits.open(
                redis.connection(),
                cluster=redis.cluster,
                sentinels=redis.sentinel_connections(),
                service=redis.service,
            )
        return self._limiters[store]

    async def close(self) -> None:
        """Close all channels, then all limiters."""
        await asyncio.gather(*(channel.close() for channel in self._channels.values()))
        await asyncio.gather(*(limiter.close() for limiter in self._limiters.values()))

    def _redis(self, store: str) -> Any:
        return self._stores[store].options
