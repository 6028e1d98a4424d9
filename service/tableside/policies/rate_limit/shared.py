"""Credits that all replicas take from one Redis, by the sliding window of the library `limits`.

A window is as many whole seconds as the burst is worth, and holds the credits that come in it; the library counts what
was taken of it, a thousandth of a credit at a time, and what was taken of the one before fades. So in any time T, no
more than rate * T and one window's credits are taken, by all replicas together. When a window's credits were taken at
once, nothing more comes until it is over.

A replica takes credits for `LEASE_S` at most at a time, as many as it lately used, and drops what it has not used
`KEEP_S` later: so what passes is what was taken within that time. Only whoever is first in its line asks. What is owed
beyond that (see `Cost`) is the replica's own debt, which its next operations pay.

While Redis cannot be asked, a replica uses its own credits, and asks again after `AGAIN_S`: a limiter that is away does
not stop a table.
"""

import asyncio
import logging
import math
from collections.abc import Sequence
from typing import Any, Self

import msgspec
from limits import RateLimitItemPerSecond
from limits.aio.storage import RedisClusterStorage, RedisStorage
from limits.aio.storage.redis.redispy import RedispyBridge
from limits.aio.strategies import SlidingWindowCounterRateLimiter
from limits.errors import StorageError
from prometheus_client import Counter

from ...directions import Direction
from .bucket import Bucket
from .credits import DEBT_S, ROUNDING, Credits, paid
from .metrics import Metrics
from .policy import Rate

log = logging.getLogger(__name__)

LEASE_S = 0.05
"""What a replica takes at most at once is what comes in this time, unless one operation costs more."""

LEASE_PART = 0.05
"""Where that is not a credit, it is so much of the window: whoever waits for more leaves as much of it unused."""

KEEP_S = 0.1
"""How long what was taken and not used is kept."""

ANSWER_MAX_S = 0.25
"""How long Redis is waited for."""

AGAIN_S = 1.0
"""How long Redis is left alone after it could not be asked."""

UNITS = 1000
"""The library counts whole numbers: so many are a credit."""

PREFIX = "tableside-limits"
"""What the names of the library's keys begin with."""


class _Lease(msgspec.Struct, frozen=True):
    """How many credits were taken; if none, how long it takes until there are some."""

    credits: float
    wait_s: float = 0.0


class SharedCredits:
    """The connection to the Redis that holds them, shared by the tables of a process that name it."""

    def __init__(self, storage: RedisStorage) -> None:
        self._storage = storage
        self._limiter = SlidingWindowCounterRateLimiter(storage)
        self._away_until = -math.inf

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
        window = _Window(self._storage, self._limiter, f"{table}/{direction}", rate)
        return _SharedBucket(self, window, rate, own.bucket(), fallbacks)

    async def lease(self, window: "_Window", wanted: float, least: float) -> _Lease | None:
        """Take so many credits, or fewer but not below `least`, or none; None is that Redis cannot be asked now."""
        now = asyncio.get_running_loop().time
        if now() < self._away_until:
            return None
        try:
            async with asyncio.timeout(ANSWER_MAX_S):
                return await window.lease(wanted, least)
        except (StorageError, TimeoutError, OSError) as error:
            self._away_until = now() + AGAIN_S
            log.warning("the shared limiter cannot be asked: %s", type(error).__name__)
            return None

    async def close(self) -> None:
        """Let go of the connections."""
        bridge = self._storage.bridge
        assert isinstance(bridge, RedispyBridge)
        await bridge.storage.aclose()


class _Window:
    """One direction of a table in Redis."""

    def __init__(self, storage: RedisStorage, limiter: SlidingWindowCounterRateLimiter, name: str, rate: Rate) -> None:
        self._storage = storage
        self._limiter = limiter
        self._name = name
        self._seconds = max(1, math.ceil(rate.at_once / rate.per_s))
        self._item = RateLimitItemPerSecond(round(rate.per_s * self._seconds * UNITS), self._seconds)
        self.most = self._item.amount / UNITS

    async def lease(self, wanted: float, least: float) -> _Lease:
        """Take what is wanted if it is there, else what is there; one round trip if it is, two or three if not."""
        units = min(math.ceil(wanted * UNITS), self._item.amount)
        enough = min(math.ceil(least * UNITS), self._item.amount)
        if await self._limiter.hit(self._item, self._name, cost=units):
            return _Lease(units / UNITS)
        key = self._item.key_for(self._name)
        before, before_s, here, here_s = await self._storage.get_sliding_window(key, self._seconds)
        free = self._item.amount - math.floor(before * before_s / self._seconds) - here
        if enough <= free and await self._limiter.hit(self._item, self._name, cost=min(free, units)):
            return _Lease(min(free, units) / UNITS)
        return _Lease(0.0, 0.001 + self._free_in_s(max(1, enough - free), enough, before, before_s, here, here_s))

    def _free_in_s(self, missing: int, units: int, before: int, before_s: float, here: int, here_s: float) -> float:
        """Return when so many units are free: as the window before fades, or when this one is the one before."""
        if before and (fades_s := missing * self._seconds / before) <= before_s:
            return fades_s
        left_s = max(0.0, here_s - self._seconds)
        over = units - (self._item.amount - here)
        return left_s + (over * self._seconds / here if over > 0 else 0.0)


class _SharedBucket:
    """What this process holds of them, and the line of those who wait: the first asks for more."""

    def __init__(
        self, shared: SharedCredits, window: _Window, rate: Rate, own: Bucket, fallbacks: Counter | None
    ) -> None:
        self._shared = shared
        self._window = window
        self._per_s = rate.per_s
        self._own = own
        self._fallbacks = fallbacks
        self._piece = min(max(rate.per_s * LEASE_S, min(1.0, window.most * LEASE_PART)), own.burst)
        self._held = 0.0
        self._leased = 0.0
        self._leased_at = -math.inf
        self._ready_at = -math.inf
        self._first = asyncio.Lock()
        self._waiting = 0
        self._wanted = 0.0

    def take_all(self, cost: float) -> bool:
        """Take so many credits if they are here and nobody waits."""
        if self._waiting or self._here() + ROUNDING < cost:
            return False
        self._held -= cost
        return True

    def take_some(self, costs: Sequence[float]) -> int:
        """Take what pays the first of these that there are credits for here, if nobody waits, and return how many."""
        if self._waiting:
            return 0
        count, cost = paid(costs, self._here(), math.inf)
        self._held -= cost
        return count

    async def take(self, costs: Sequence[float], until: float) -> int:
        """Wait for what pays the first of these, and return for how many; 0 if it is not here by `until`."""
        count, cost = paid(costs, self._piece, math.inf)
        if not count:
            count, cost = 1, costs[0]
        self._waiting += 1
        self._wanted += cost
        try:
            async with asyncio.timeout_at(None if until == math.inf else until) as bound, self._first:
                if await self._gathered(self._need(cost), until):
                    self._held -= cost
                    return count
                return 0
        except TimeoutError:
            if not bound.expired():
                raise
            return 0
        finally:
            self._waiting -= 1
            self._wanted = self._wanted - cost if self._waiting else 0.0

    def give_back(self, cost: float) -> None:
        """Put back credits that were taken and not used."""
        self._held += cost

    def owe(self, cost: float) -> None:
        """Take credits that may not be there yet; who comes next here waits for them."""
        self._held = max(self._held - cost, min(self._held, -DEBT_S * self._per_s))

    def wait_s(self, cost: float) -> float:
        """Return in how many seconds, at the earliest, such an operation can pass; 0 where that is not known."""
        left_s = self._ready_at - asyncio.get_running_loop().time()
        if left_s <= 0:
            return 0.0
        return left_s + max(0.0, self._wanted + self._need(cost) - self._held - self._piece) / self._per_s

    def _need(self, cost: float) -> float:
        return min(cost, self._window.most)

    def _here(self) -> float:
        if self._held > 0 and asyncio.get_running_loop().time() > self._leased_at + KEEP_S:
            self._held = 0.0
        return self._held

    async def _gathered(self, need: float, until: float) -> bool:
        """Take leases until that much is here; at once False if it cannot be by `until`."""
        self._here()
        now = asyncio.get_running_loop().time
        while (missing := need - self._held) > ROUNDING:
            lease = await self._lease(missing)
            self._held += lease.credits
            if not lease.credits:
                self._ready_at = now() + lease.wait_s
                if self._ready_at + max(0.0, missing - self._piece) / self._per_s > until:
                    return False
                await asyncio.sleep(lease.wait_s)
        return True

    async def _lease(self, missing: float) -> _Lease:
        """Take what is missing, and as much beside that as the line wants, or as will be used soon, up to a piece.

        Where there is not that much, all of it is waited for: one question for many operations.
        """
        now = asyncio.get_running_loop().time()
        lasted_s = max(0.001, now - self._leased_at)
        used_soon = self._leased * min(2.0, LEASE_S / lasted_s)
        least = min(self._piece, max(missing, self._wanted - self._held, used_soon))
        wanted = max(missing, least)
        lease = await self._shared.lease(self._window, wanted, least)
        if lease is None:
            lease = self._own_lease(wanted, least)
        if lease.credits:
            self._leased, self._leased_at = lease.credits, asyncio.get_running_loop().time()
        return lease

    def _own_lease(self, wanted: float, least: float) -> _Lease:
        if self._fallbacks is not None:
            self._fallbacks.inc()
        for credit in (wanted, least):
            if self._own.take_all(credit):
                return _Lease(credit)
        return _Lease(0.0, max(0.001, self._own.wait_s(least)))


def _options(connection: dict[str, Any]) -> dict[str, Any]:
    """Return what the driver's client is told, of what its connections are told."""
    options = dict(connection)
    kind = options.pop("connection_class", None)
    if "path" in options:
        options["unix_socket_path"] = options.pop("path")
    elif kind is not None:
        options["ssl"] = True
    return options | {"socket_connect_timeout": ANSWER_MAX_S, "socket_timeout": ANSWER_MAX_S}
