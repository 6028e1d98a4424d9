"""Credits that all replicas take from one Redis, a single server or a cluster, through the library `limits`.

While Redis cannot be asked, a replica uses its own credits, and only a task of its own asks whether it is back: a
limiter that is away does not stop a table, nor does anyone wait for it. This module is imported only where something is
shared: the library comes with the extra for Redis.
"""

import asyncio
import contextlib
import logging
from functools import partial
from typing import Any, Self

from limits.aio.storage import RedisClusterStorage, RedisStorage
from limits.aio.storage.redis.redispy import RedispyBridge
from limits.aio.strategies import SlidingWindowCounterRateLimiter
from limits.errors import StorageError
from redis.exceptions import RedisClusterException

from ...core.directions import Direction
from .credits import Credits
from .leased import Lease, LeasedBucket, SharedWindow
from .metrics import RateLimitMetrics
from .policy import Rate

log = logging.getLogger(__name__)

RESPONSE_TIMEOUT_S = 0.25
"""How long Redis is waited for."""

CONNECT_TIMEOUT_S = 2.0
"""The same for its first answer, which may need connections to several nodes."""

PROBE_INTERVAL_S = 1.0
"""How long Redis is left alone after it could not be asked."""

KEY_PREFIX = "tableside-limits"
"""What the names of the library's keys begin with."""

_UNREACHABLE = (StorageError, RedisClusterException, TimeoutError, OSError)
"""A cluster of which no node answers is none of the driver's other errors, which the library makes its own of."""


class SharedCredits:
    """The connection to the Redis that holds them, shared by the tables of a process that name it."""

    def __init__(self, storage: RedisStorage) -> None:
        self._storage = storage
        self._limiter = SlidingWindowCounterRateLimiter(storage)
        self._answered = False
        self._probing: asyncio.Task[None] | None = None

    @classmethod
    def open(cls, connection: dict[str, Any], *, cluster: bool = False) -> Self:
        """Return credits of the Redis that a driver's connection arguments name; it is connected when first asked."""
        options = _options(connection)
        if not cluster:
            return cls(RedisStorage("async+redis://", True, "redispy", KEY_PREFIX, **options))
        host, port = options.pop("host", "localhost"), options.pop("port", 6379)
        options.pop("db", None)
        where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        return cls(RedisClusterStorage(f"async+redis+cluster://{where}", True, "redispy", KEY_PREFIX, **options))

    def credits(
        self,
        table: str,
        direction: Direction,
        rate: Rate,
        own: Rate,
        metrics: RateLimitMetrics | None,
        partition: int | None = None,
    ) -> Credits:
        """Return the credits of one direction of a table, or of one partition of it.

        `own` is what this process has while Redis is away.
        """
        fallbacks = metrics.fallbacks.labels(table, direction) if metrics else None
        place = table if partition is None else f"{table}/{partition}"
        window = SharedWindow(self._storage, self._limiter, f"{place}/{direction}", rate)
        return LeasedBucket(partial(self._lease, window), window.most, rate, own.bucket(), fallbacks)

    async def close(self) -> None:
        """Let go of the connections."""
        if self._probing is not None:
            self._probing.cancel()
        bridge = self._storage.bridge
        assert isinstance(bridge, RedispyBridge)
        await bridge.storage.aclose()

    async def _lease(self, window: SharedWindow, wanted: float, least: float) -> Lease | None:
        if self._probing is not None:
            return None
        try:
            async with asyncio.timeout(RESPONSE_TIMEOUT_S if self._answered else CONNECT_TIMEOUT_S):
                lease = await window.lease(wanted, least)
        except _UNREACHABLE as error:
            self._on_unreachable(error)
            return None
        self._answered = True
        return lease

    def _on_unreachable(self, error: Exception) -> None:
        if self._probing is None:
            log.warning("the shared limiter cannot be asked, each replica limits itself: %s", type(error).__name__)
            self._probing = asyncio.create_task(self._probe())

    async def _probe(self) -> None:
        """Ask until there is an answer."""
        self._answered = False
        while not self._answered:
            await asyncio.sleep(PROBE_INTERVAL_S)
            with contextlib.suppress(*_UNREACHABLE):
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    await self._storage.get("whether it is there")
                self._answered = True
        self._probing = None
        log.warning("the shared limiter can be asked again")


def _options(connection: dict[str, Any]) -> dict[str, Any]:
    """Return what the driver's client is told, of what its connections are told."""
    options = dict(connection)
    kind = options.pop("connection_class", None)
    if "path" in options:
        options["unix_socket_path"] = options.pop("path")
    elif kind is not None:
        options["ssl"] = True
    return options | {"socket_connect_timeout": CONNECT_TIMEOUT_S, "socket_timeout": CONNECT_TIMEOUT_S, "retry": None}
