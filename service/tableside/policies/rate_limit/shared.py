"""Credits that all replicas share in one Redis through the library `limits`: a server, a cluster, or with Sentinels.

While Redis is unreachable, a replica uses its own credits and a background task probes Redis, so calls do not wait for
the limiter. This module is imported only when credits are shared: the library is in the extra for Redis.
"""

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from functools import partial
from typing import Any, Self

from limits.aio.storage import RedisClusterStorage, RedisSentinelStorage, RedisStorage
from limits.aio.storage.redis.redispy import RedispyBridge
from limits.aio.strategies import SlidingWindowCounterRateLimiter
from limits.errors import StorageError
from redis.exceptions import AuthenticationError, RedisClusterException, ResponseError

from ...core.directions import Direction
from .credits import Credits
from .leased import Lease, LeasedBucket, SharedWindow
from .metrics import RateLimitMetrics
from .policy import Rate

log = logging.getLogger(__name__)

RESPONSE_TIMEOUT_S = 0.25
"""Timeout of a response of Redis."""

CONNECT_TIMEOUT_S = 2.0
"""Timeout of the first response, which may need connections to several nodes."""

PROBE_INTERVAL_S = 1.0
"""Interval between probes of an unreachable Redis."""

KEY_PREFIX = "tableside-limits"
"""Prefix of the library's keys."""

_UNREACHABLE = (StorageError, RedisClusterException, TimeoutError, OSError)
"""The library wraps the driver's errors in StorageError, except RedisClusterException: no node responds."""


class SharedCredits:
    """The connection to the Redis of the credits, shared by the tables of a process that use it."""

    def __init__(self, storage: RedisStorage) -> None:
        self._storage = storage
        self._limiter = SlidingWindowCounterRateLimiter(storage)
        self._answered = False
        self._probing: asyncio.Task[None] | None = None

    @classmethod
    def open(
        cls,
        connection: dict[str, Any],
        *,
        cluster: bool = False,
        sentinels: Sequence[dict[str, Any]] = (),
        service: str = "",
    ) -> Self:
        """Return the credits of a Redis, from the driver's connection arguments. The first request connects.

        With `sentinels`, the arguments for a connection to each, the Redis is the primary of their `service`.
        """
        options = _options(connection)
        if sentinels:
            where = ",".join(_where(each["host"], each["port"]) for each in sentinels)
            shared = _options({name: sentinels[0][name] for name in sentinels[0].keys() - {"host", "port"}})
            uri = f"async+redis+sentinel://{where}"
            return cls(
                RedisSentinelStorage(
                    uri, True, "redispy", KEY_PREFIX, service, False, sentinel_kwargs=shared, **options
                )
            )
        if not cluster:
            return cls(RedisStorage("async+redis://", True, "redispy", KEY_PREFIX, **options))
        host, port = options.pop("host", "localhost"), options.pop("port", 6379)
        options.pop("db", None)
        uri = f"async+redis+cluster://{_where(host, port)}"
        return cls(RedisClusterStorage(uri, True, "redispy", KEY_PREFIX, **options))

    def credits(
        self,
        table: str,
        direction: Direction,
        rate: Rate,
        own: Rate,
        metrics: RateLimitMetrics | None,
        partition: int | None = None,
    ) -> Credits:
        """Return the credits of one direction of a table or of one of its partitions.

        While Redis is unreachable, credits come from this process's `own` rate.
        """
        fallbacks = metrics.fallbacks.labels(table, direction) if metrics else None
        place = table if partition is None else f"{table}/{partition}"
        window = SharedWindow(self._storage, self._limiter, f"{place}/{direction}", rate)
        return LeasedBucket(partial(self._lease, window), window.most, rate, own.bucket(), fallbacks)

    async def close(self) -> None:
        """Close the connections."""
        if self._probing is not None:
            self._probing.cancel()
        bridge = self._storage.bridge
        assert isinstance(bridge, RedispyBridge)
        sentinels = bridge.sentinel.sentinels if isinstance(self._storage, RedisSentinelStorage) else ()
        for client in (bridge.storage, *sentinels):
            await client.aclose()

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
            log.warning("the shared limiter is unreachable, each replica limits itself: %s", _reason(error))
            self._probing = asyncio.create_task(self._probe())

    async def _probe(self) -> None:
        """Probe Redis until it responds."""
        self._answered = False
        while not self._answered:
            await asyncio.sleep(PROBE_INTERVAL_S)
            with contextlib.suppress(*_UNREACHABLE):
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    await self._storage.get("whether it is there")
                self._answered = True
        self._probing = None
        log.warning("the shared limiter is reachable again")


def _where(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _options(connection: dict[str, Any]) -> dict[str, Any]:
    """Convert the driver's connection arguments to arguments of its client."""
    options = dict(connection)
    kind = options.pop("connection_class", None)
    if "path" in options:
        options["unix_socket_path"] = options.pop("path")
    elif kind is not None:
        options["ssl"] = True
    return options | {"socket_connect_timeout": CONNECT_TIMEOUT_S, "socket_timeout": CONNECT_TIMEOUT_S, "retry": None}


def _reason(error: Exception) -> str:
    """Return the type of an error, and the message of Redis if it rejects the connection or a script."""
    cause = error.__cause__ or error
    rejected = isinstance(cause, AuthenticationError | ResponseError)
    return f"{type(cause).__name__}: {cause}" if rejected else type(cause).__name__
