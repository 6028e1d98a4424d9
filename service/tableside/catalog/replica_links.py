"""Links between replicas through stores of kind redis: cache invalidation channels and shared rate limits.

Each link is opened, and its driver imported, when a table first names its store. All are closed together.
"""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..policies import cache
from ..settings import StoreSettings

if TYPE_CHECKING:
    from ..policies.cache.invalidation.channel import Channel
    from ..policies.rate_limit.shared import SharedCredits


class ReplicaLinks:
    """The links to other replicas, by the name of the store that carries them."""

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
