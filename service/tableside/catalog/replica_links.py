"""What the replicas of a service have in common, through stores of kind redis: channels of caches, and shared limits.

Each is opened when a table first names its store, and all are closed together. Their drivers are imported only then.
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
    """The ways to the other replicas, by the name of the store that carries them."""

    def __init__(self, stores: Mapping[str, StoreSettings], caches: cache.CacheMetrics) -> None:
        self._stores = stores
        self._caches = caches
        self._channels: dict[str, Channel] = {}
        self._limiters: dict[str, SharedCredits] = {}

    def channel(self, store: str) -> "Channel":
        """Return the channel by which caches tell each other what was written."""
        if store not in self._channels:
            from ..policies.cache.invalidation.channel import Channel

            redis = self._redis(store)
            self._channels[store] = Channel(
                redis.connection(),
                store=store,
                cluster=redis.cluster,
                connect_timeout_s=redis.connect_timeout_s,
                metrics=self._caches,
            )
        return self._channels[store]

    def limiter(self, store: str) -> "SharedCredits":
        """Return the credits that all replicas have together."""
        if store not in self._limiters:
            from ..policies.rate_limit.shared import SharedCredits

            redis = self._redis(store)
            self._limiters[store] = SharedCredits.open(redis.connection(), cluster=redis.cluster)
        return self._limiters[store]

    async def close(self) -> None:
        """Let go of all of them."""
        await asyncio.gather(*(channel.close() for channel in self._channels.values()))
        await asyncio.gather(*(limiter.close() for limiter in self._limiters.values()))

    def _redis(self, store: str) -> Any:
        return self._stores[store].options
