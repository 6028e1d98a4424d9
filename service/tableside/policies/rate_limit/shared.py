"""Credits that all replicas take from one Redis, a single server or a cluster, through the library `limits`.

While Redis cannot be asked, a replica uses its own credits, and asks again after `AGAIN_S`: a limiter that is away does
not stop a table. This module is imported only where something is shared: the library comes with the extra for Redis.
"""

import asyncio
import logging
from functools import partial
from typing import Any, Self

from limits.aio.storage import RedisClusterStorage, RedisStorage
from limits.aio.storage.redis.redispy import RedispyBridge
from limits.aio.strategies import SlidingWindowCounterRateLimiter
from limits.errors import StorageError

from ...directions import Direction
from .credits import Credits
from .leased import LeasedBucket
from .metrics import Metrics
from .policy import Rate
from .window import Lease, Window

log = logging.getLogger(__name__)

ANSWER_MAX_S = 0.25
"""How long Redis is waited for."""

AGAIN_S = 1.0
"""How long Redis is left alone after it could not be asked."""

PREFIX = "tableside-limits"
"""What the names of the library's keys begin with."""


class SharedCredits:
    """The connection to the Redis that holds them, shared by the tables of a process that name it."""

    def __init__(self, storage: RedisStorage) -> None:
        self._storage = storage
        self._limiter = SlidingWindowCounterRateLimiter(storage)
        self._away_until = 0.0

    @classmethod
    def open(cls, connection: dict[str, Any], *, cluster: bool = False) -> Self:
        """Return credits of the Redis that a driver's connection arguments name; it is connected when first asked."""
        options = _options(connection)
        if not cluster:
            return cls(RedisStorage("async+redis://", True, "redispy", PREFIX, **options))
        host, port = options.pop("host", "localhost"), options.pop("port", 6379)
        options.pop("db", None)
        where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        return cls(RedisClusterStorage(f"async+redis+cluster://{where}", True, "redispy", PREFIX, **options))

    def credits(self, table: str, direction: Direction, rate: Rate, own: Rate, metrics: Metrics | None) -> Credits:
        """Return the credits of one direction of a table; `own` is what this process has while Redis is away."""
        fallbacks = metrics.fallbacks.labels(table, direction) if metrics else None
        window = Window(self._storage, self._limiter, f"{table}/{direction}", rate)
        return LeasedBucket(partial(self._lease, window), window.most, rate, own.bucket(), fallbacks)

    async def close(self) -> None:
        """Let go of the connections."""
        bridge = self._storage.bridge
        assert isinstance(bridge, RedispyBridge)
        await bridge.storage.aclose()

    async def _lease(self, window: Window, wanted: float, least: float) -> Lease | None:
        now = asyncio.get_running_loop().time
        if now() < self._away_until:
            return None
        try:
            async with asyncio.timeout(ANSWER_MAX_S):
                lease = await window.lease(wanted, least)
        except (StorageError, TimeoutError, OSError) as error:
            self._gone(error, now() + AGAIN_S)
            return None
        if self._away_until > 0:
            log.warning("the shared limiter can be asked again")
            self._away_until = 0.0
        return lease

    def _gone(self, error: Exception, until: float) -> None:
        if not self._away_until:
            log.warning("the shared limiter cannot be asked, each replica limits itself: %s", type(error).__name__)
        self._away_until = until


def _options(connection: dict[str, Any]) -> dict[str, Any]:
    """Return what the driver's client is told, of what its connections are told."""
    options = dict(connection)
    kind = options.pop("connection_class", None)
    if "path" in options:
        options["unix_socket_path"] = options.pop("path")
    elif kind is not None:
        options["ssl"] = True
    return options | {"socket_connect_timeout": ANSWER_MAX_S, "socket_timeout": ANSWER_MAX_S}
