"""Credits that all replicas share in one Redis through the library `limits`: a server, a cluster, or with Sentinels.

While Redis is unreachable, a replica uses its own credits and a background task probes Redis, so calls do not wait for
the limiter. This module is imported only when credits are shared: the library is in the extra for Redis.

A lease takes credits from a sliding window in Redis, which the library implements with whole numbers.
A window has the length of the burst, rounded up to whole seconds, and the credits that arrive in it. The usage of the
previous window decreases linearly. In any time T, callers therefore take at most the credits of T and of one window. If
they take all credits of a window at once, no more are available until it ends.
"""

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Self, TypeAlias

import msgspec
from limits import RateLimitItemPerSecond
from limits.aio.storage import RedisClusterStorage, RedisSentinelStorage, RedisStorage
from limits.aio.storage.redis.redispy import RedispyBridge
from limits.aio.strategies import SlidingWindowCounterRateLimiter
from limits.errors import StorageError
from redis.exceptions import AuthenticationError, RedisClusterException, ResponseError

from ...core.batch import Direction
from ...telemetry import Counter
from ..metrics import PolicyMetrics
from .credits import ROUNDING, Bucket, Credits, Rate, affordable

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

UNITS = 1000
"""Units that the library counts per credit."""

CLOCK_RESOLUTION_S = 0.001
"""Resolution of the times in Redis: milliseconds."""

LEASE_S = 0.05
"""A process leases at most the credits of this time in one step, unless one operation costs more."""

LEASE_WINDOW_SHARE = 0.05
"""For slow rates, a lease has up to one credit, but at most this share of the window, because it may stay unused."""

KEEP_S = 0.1
"""Lifetime of leased credits that are not used."""

WAIT_MIN_S = 0.001

RequestLease: TypeAlias = "Callable[[float, float], Awaitable[Lease | None]]"
"""Leases the requested credits, or fewer but not less than the second number, or None if the limiter is unreachable."""


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
        metrics: PolicyMetrics,
        partition: int | None = None,
    ) -> Credits:
        """Return the credits of one direction of a table or of one of its partitions.

        While Redis is unreachable, credits come from this process's `own` rate.
        """
        fallbacks = metrics.limiter_fallbacks.labels(table, direction)
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

    async def _lease(self, window: "SharedWindow", wanted: float, least: float) -> "Lease | None":
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


class Lease(msgspec.Struct, frozen=True):
    """The credits that were taken, or the time until some are available."""

    credits: float
    wait_s: float = 0.0


class SharedWindow:
    """The window of one direction of a table in Redis."""

    def __init__(self, storage: RedisStorage, limiter: SlidingWindowCounterRateLimiter, name: str, rate: Rate) -> None:
        self._storage = storage
        self._limiter = limiter
        self._name = name
        self._seconds = max(1, math.ceil(rate.burst_credits / rate.per_s))
        self._item = RateLimitItemPerSecond(round(rate.per_s * self._seconds * UNITS), self._seconds)
        self.most = self._item.amount / UNITS

    async def lease(self, wanted: float, least: float) -> Lease:
        """Take the requested credits, or the available ones if they are at least `least`.

        It takes one round trip if the requested credits are available, and two or three if not.
        """
        units = min(math.ceil(wanted * UNITS), self._item.amount)
        enough = min(math.ceil(least * UNITS), self._item.amount)
        if await self._limiter.hit(self._item, self._name, cost=units):
            return Lease(units / UNITS)
        key = self._item.key_for(self._name)
        previous, previous_s, current, current_s = await self._storage.get_sliding_window(key, self._seconds)
        free = self._item.amount - math.floor(previous * previous_s / self._seconds) - current
        if enough <= free and await self._limiter.hit(self._item, self._name, cost=min(free, units)):
            return Lease(min(free, units) / UNITS)
        return Lease(
            0.0,
            CLOCK_RESOLUTION_S
            + self._free_in_s(max(1, enough - free), enough, previous, previous_s, current, current_s),
        )

    def _free_in_s(
        self, missing: int, units: int, previous: int, previous_s: float, current: int, current_s: float
    ) -> float:
        """Return the seconds until so many units are free, as the previous or the current window fades."""
        if previous and (fades_s := missing * self._seconds / previous) <= previous_s:
            return fades_s
        left_s = max(0.0, current_s - self._seconds)
        over = units - (self._item.amount - current)
        return left_s + (over * self._seconds / current if over > 0 else 0.0)


class LeasedBucket(Credits):
    """The credits of one direction of a table that this process has leased."""

    def __init__(self, request_lease: RequestLease, most: float, rate: Rate, own: Bucket, fallbacks: Counter) -> None:
        """Lease credits of `rate`, at most `most` at once. While the limiter is unreachable, use the `own` credits."""
        super().__init__(rate.per_s, math.inf, 0.0)
        self._request_lease = request_lease
        self._most = most
        self._own = own
        self._fallbacks = fallbacks
        self._lease_size = min(max(rate.per_s * LEASE_S, min(1.0, most * LEASE_WINDOW_SHARE)), own.burst)
        self._leased = 0.0
        self._leased_at = -math.inf
        self._ready_at = -math.inf
        self._turn_lock = asyncio.Lock()
        self._waiting = 0
        self._wanted = 0.0

    @property
    def _busy(self) -> bool:
        return self._waiting > 0

    async def take(self, costs: Sequence[float], until: float) -> int:
        """Wait for credits to pay the first of these costs. Return their number, 0 if they do not arrive by `until`."""
        count, cost = affordable(costs, self._lease_size, math.inf)
        if not count:
            count, cost = 1, costs[0]
        self._waiting += 1
        self._wanted += cost
        try:
            async with asyncio.timeout_at(None if until == math.inf else until) as bound, self._turn_lock:
                if await self._lease_until(self._need(cost), until):
                    self._credits -= cost
                    return count
                return 0
        except TimeoutError:
            if not bound.expired():
                raise
            return 0
        finally:
            self._waiting -= 1
            self._wanted = self._wanted - cost if self._waiting else 0.0

    def wait_s(self, cost: float) -> float:
        """Return the seconds until, at the earliest, an operation of this cost can pass, or 0 if that is unknown."""
        left_s = self._ready_at - time.monotonic()
        if left_s <= 0:
            return 0.0
        return left_s + max(0.0, self._wanted + self._need(cost) - self._credits - self._lease_size) / self._per_s

    def _need(self, cost: float) -> float:
        return min(cost, self._most)

    def _update(self) -> None:
        """Drop leased credits that were not used in time."""
        if self._credits > 0 and time.monotonic() > self._leased_at + KEEP_S:
            self._credits = 0.0

    async def _lease_until(self, need: float, until: float) -> bool:
        """Lease until the needed credits are here. Return False as soon as that is impossible by `until`."""
        self._update()
        while (missing := need - self._credits) > ROUNDING:
            lease = await self._lease(missing)
            self._credits += lease.credits
            if not lease.credits:
                self._ready_at = time.monotonic() + lease.wait_s
                if self._ready_at + max(0.0, missing - self._lease_size) / self._per_s > until:
                    return False
                await asyncio.sleep(lease.wait_s)
        return True

    async def _lease(self, missing: float) -> Lease:
        """Lease the missing credits, and up to one lease size for waiting calls and for the use expected soon.

        If fewer are available, wait for all of them: one request serves many operations.
        """
        now = time.monotonic()
        lasted_s = max(WAIT_MIN_S, now - self._leased_at)
        used_soon = self._leased * min(2.0, LEASE_S / lasted_s)
        least = min(self._lease_size, max(missing, self._wanted - self._credits, used_soon))
        wanted = max(missing, least)
        lease = await self._request_lease(wanted, least)
        if lease is None:
            lease = self._own_lease(wanted, least)
        if lease.credits:
            self._leased, self._leased_at = lease.credits, time.monotonic()
        return lease

    def _own_lease(self, wanted: float, least: float) -> Lease:
        self._fallbacks.inc()
        for credit in (wanted, least):
            if self._own.try_take(credit):
                return Lease(credit)
        return Lease(0.0, max(WAIT_MIN_S, self._own.wait_s(least)))


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
