"""Credits that all replicas share in one Redis through the library `limits`: a server, a cluster, or with Sentinels.

While Redis is unreachable, a replica uses its own credits and a background task probes Redis, so calls do not wait for
the limiter. This module is imported only when credits are shared: the library is in the extra for Redis.

The credits are in a sliding window in Redis, which the library implements. A window has the length of the burst,
rounded up to whole seconds, and the credits that arrive in it. The usage of the previous window decreases linearly. In
any time T, callers therefore take at most the credits of T and of one window. If they take all credits of a window at
once, no more are available until it ends.
"""

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Sequence
from typing import Any, Self

from limits import RateLimitItem, RateLimitItemPerSecond
from limits.aio.storage import RedisClusterStorage, RedisSentinelStorage, RedisStorage
from limits.aio.storage.redis.redispy import RedispyBridge
from limits.aio.strategies import SlidingWindowCounterRateLimiter
from limits.errors import StorageError
from redis.exceptions import AuthenticationError, RedisClusterException, ResponseError

from ...core.batch import Direction
from ...telemetry import Counter
from .credits import SHARE_S, Bucket, Rate

log = logging.getLogger(__name__)

RESPONSE_TIMEOUT_S = 0.25

CONNECT_TIMEOUT_S = 2.0
"""Timeout of the first response, which may need connections to several nodes."""

PROBE_INTERVAL_S = 1.0
"""Interval between probes of an unreachable Redis."""

KEY_PREFIX = "tableside-limits"

_UNREACHABLE = (StorageError, RedisClusterException, TimeoutError, OSError)
"""The library wraps the driver's errors in StorageError, except RedisClusterException: no node responds."""

UNITS = 1000
"""Units that the library counts per credit, because it counts whole numbers."""

POLL_MIN_S = 0.02
POLL_MAX_S = 1.0
"""A call that waits for credits asks Redis again after the time of one credit, within these bounds."""


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
            more = {"sentinel_kwargs": shared, **options}
            return cls(RedisSentinelStorage(uri, True, "redispy", KEY_PREFIX, service, False, **more))
        if not cluster:
            return cls(RedisStorage("async+redis://", True, "redispy", KEY_PREFIX, **options))
        host, port = options.pop("host", "localhost"), options.pop("port", 6379)
        options.pop("db", None)
        uri = f"async+redis+cluster://{_where(host, port)}"
        return cls(RedisClusterStorage(uri, True, "redispy", KEY_PREFIX, **options))

    def credits(
        self, table: str, direction: Direction, rate: Rate, own: Rate, fallbacks: Counter, partition: int | None = None
    ) -> "SharedBucket":
        """Return the credits of one direction of a table or of one of its partitions.

        While Redis is unreachable, credits come from this process's `own` rate, and `fallbacks` counts that.
        """
        place = table if partition is None else f"{table}/{partition}"
        return SharedBucket(self, f"{place}/{direction}", rate, Bucket(own), fallbacks)

    async def take(self, item: RateLimitItem, name: str, count: int) -> int | None:
        """Take up to so many credits of a window. Return their number, or None if Redis is unreachable."""
        if self._probing is not None:
            return None
        try:
            async with asyncio.timeout(RESPONSE_TIMEOUT_S if self._answered else CONNECT_TIMEOUT_S):
                taken = count if await self._limiter.hit(item, name, cost=count * UNITS) else 0
                if not taken:
                    left = (await self._limiter.get_window_stats(item, name)).remaining // UNITS
                    if 0 < left < count and await self._limiter.hit(item, name, cost=left * UNITS):
                        taken = left
        except _UNREACHABLE as error:
            if self._probing is None:
                # The message of Redis only if it rejects the connection or a script.
                cause = error.__cause__ or error
                message = f": {cause}" if isinstance(cause, AuthenticationError | ResponseError) else ""
                reason = type(cause).__name__ + message
                log.warning("the shared limiter is unreachable, each replica limits itself: %s", reason)
                self._probing = asyncio.create_task(self._probe())
            return None
        self._answered = True
        return taken

    async def close(self) -> None:
        """Close the connections."""
        if self._probing is not None:
            self._probing.cancel()
        bridge = self._storage.bridge
        assert isinstance(bridge, RedispyBridge)
        sentinels = bridge.sentinel.sentinels if isinstance(self._storage, RedisSentinelStorage) else ()
        for client in (bridge.storage, *sentinels):
            await client.aclose()

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


class SharedBucket:
    """The credits of one direction of a table in Redis. One request asks for the credits of all waiting calls."""

    def __init__(self, shared: SharedCredits, name: str, rate: Rate, own: Bucket, fallbacks: Counter) -> None:
        self._shared = shared
        self._name = name
        self._own = own
        self._fallbacks = fallbacks
        seconds = max(1, math.ceil(rate.burst_credits / rate.per_s))
        self._item = RateLimitItemPerSecond(round(rate.per_s * seconds * UNITS), seconds)
        self._most = max(1, self._item.amount // UNITS)
        self._share = max(1, int(rate.per_s * SHARE_S))
        self._credit_s = 1 / rate.per_s
        self._ready_at = -math.inf
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._taken = 0

    def take_now(self, count: int) -> int:
        """Return 0: the credits are in Redis."""
        return 0

    async def take(self, count: int, until: float) -> int:
        """Ask Redis for up to so many credits, again until there are some. Return 0 if none arrive by `until`."""
        count = min(count, self._share)
        self._waiting += count
        try:
            async with asyncio.timeout_at(None if until == math.inf else until) as bound, self._turn:
                while not self._taken:
                    asked = min(self._waiting, self._most)
                    available = await self._shared.take(self._item, self._name, asked)
                    if available is None:
                        self._fallbacks.inc()
                        available = self._own.take_now(asked)
                    self._taken = available
                    if not available:
                        self._ready_at = time.monotonic() + self._credit_s
                        if self._ready_at > until:
                            return 0
                        await asyncio.sleep(min(max(self._credit_s, POLL_MIN_S), POLL_MAX_S))
                taken = min(count, self._taken)
                self._taken -= taken
                return taken
        except TimeoutError:
            if not bound.expired():
                raise
            return 0
        finally:
            self._waiting -= count

    def wait_s(self) -> float:
        """Return the rest of the time of one credit since Redis last had none. Only Redis has the exact time."""
        return max(0.0, self._ready_at - time.monotonic())


def _where(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _options(connection: dict[str, Any]) -> dict[str, Any]:
    """Convert the driver's connection arguments to arguments of its client."""
    options = {name: value for name, value in connection.items() if name != "connection_class"}
    timeouts = dict.fromkeys(("socket_connect_timeout", "socket_timeout"), CONNECT_TIMEOUT_S)
    return options | timeouts | {"retry": None, "ssl": connection.get("connection_class") is not None}
