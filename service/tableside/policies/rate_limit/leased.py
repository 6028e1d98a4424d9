"""A window of credits in Redis, by the sliding window of the library `limits`, which counts whole numbers only.

A window is as many whole seconds as the burst is worth, and holds the credits that come in it; what was taken of the
one before fades. So in any time T no more is taken than comes in it and one window's credits. When a window's credits
were taken at once, nothing more comes until it is over.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

import msgspec
from limits import RateLimitItemPerSecond
from limits.aio.storage import RedisStorage
from limits.aio.strategies import SlidingWindowCounterRateLimiter
from prometheus_client import Counter

from .bucket import Bucket
from .credits import DEBT_S, ROUNDING, affordable
from .policy import Rate

UNITS = 1000
"""So many of what the library counts are a credit."""

CLOCK_RESOLUTION_S = 0.001
"""Redis counts milliseconds."""


class Lease(msgspec.Struct, frozen=True):
    """How many credits were taken; if none, how long it takes until there are some."""

    credits: float
    wait_s: float = 0.0


class SharedWindow:
    """One direction of a table in Redis."""

    def __init__(self, storage: RedisStorage, limiter: SlidingWindowCounterRateLimiter, name: str, rate: Rate) -> None:
        self._storage = storage
        self._limiter = limiter
        self._name = name
        self._seconds = max(1, math.ceil(rate.burst_credits / rate.per_s))
        self._item = RateLimitItemPerSecond(round(rate.per_s * self._seconds * UNITS), self._seconds)
        self.most = self._item.amount / UNITS

    async def lease(self, wanted: float, least: float) -> Lease:
        """Take what is wanted if it is there, else what is there; one round trip if it is, two or three if not."""
        units = min(math.ceil(wanted * UNITS), self._item.amount)
        enough = min(math.ceil(least * UNITS), self._item.amount)
        if await self._limiter.hit(self._item, self._name, cost=units):
            return Lease(units / UNITS)
        key = self._item.key_for(self._name)
        before, before_s, here, here_s = await self._storage.get_sliding_window(key, self._seconds)
        free = self._item.amount - math.floor(before * before_s / self._seconds) - here
        if enough <= free and await self._limiter.hit(self._item, self._name, cost=min(free, units)):
            return Lease(min(free, units) / UNITS)
        return Lease(
            0.0, CLOCK_RESOLUTION_S + self._free_in_s(max(1, enough - free), enough, before, before_s, here, here_s)
        )

    def _free_in_s(self, missing: int, units: int, before: int, before_s: float, here: int, here_s: float) -> float:
        """Return when so many units are free: as the window before fades, or when this one is the one before."""
        if before and (fades_s := missing * self._seconds / before) <= before_s:
            return fades_s
        left_s = max(0.0, here_s - self._seconds)
        over = units - (self._item.amount - here)
        return left_s + (over * self._seconds / here if over > 0 else 0.0)


LEASE_S = 0.05
"""What a process takes at most at once is what comes in this time, unless one operation costs more."""

LEASE_WINDOW_SHARE = 0.05
"""Where that is not a credit, it is so much of the window: whoever waits for more leaves as much of it unused."""

KEEP_S = 0.1
"""How long what was taken and not used is kept."""

WAIT_MIN_S = 0.001

RequestLease: TypeAlias = Callable[[float, float], Awaitable[Lease | None]]
"""Asks for so many credits, or fewer but not below the second number; None is that it cannot be asked now."""


class LeasedBucket:
    """Credits of one direction of a table, as far as they are this process's."""

    def __init__(
        self, ask: RequestLease, most: float, rate: Rate, own: Bucket, fallbacks: Counter | None = None
    ) -> None:
        """Ask for credits of `rate`, of which there are `most` at once; `own` are used when nobody can be asked."""
        self._ask = ask
        self._most = most
        self._per_s = rate.per_s
        self._own = own
        self._fallbacks = fallbacks
        self._lease_size = min(max(rate.per_s * LEASE_S, min(1.0, most * LEASE_WINDOW_SHARE)), own.burst)
        self._credits = 0.0
        self._leased = 0.0
        self._leased_at = -math.inf
        self._ready_at = -math.inf
        self._turn_lock = asyncio.Lock()
        self._waiting = 0
        self._wanted = 0.0

    def try_take(self, cost: float) -> bool:
        """Take so many credits if they are here and nobody waits."""
        if self._waiting or self._here() + ROUNDING < cost:
            return False
        self._credits -= cost
        return True

    def take_some(self, costs: Sequence[float]) -> int:
        """Take what pays the first of these that there are credits for here, if nobody waits, and return how many."""
        if self._waiting:
            return 0
        count, cost = affordable(costs, self._here(), math.inf)
        self._credits -= cost
        return count

    async def take(self, costs: Sequence[float], until: float) -> int:
        """Wait for what pays the first of these, and return for how many; 0 if it is not here by `until`."""
        count, cost = affordable(costs, self._lease_size, math.inf)
        if not count:
            count, cost = 1, costs[0]
        self._waiting += 1
        self._wanted += cost
        try:
            async with asyncio.timeout_at(None if until == math.inf else until) as bound, self._turn_lock:
                if await self._gathered(self._need(cost), until):
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

    def refund(self, cost: float) -> None:
        """Put back credits that were taken and not used."""
        self._credits += cost

    def charge(self, cost: float) -> None:
        """Take credits that may not be there yet; who comes next here waits for them."""
        self._credits = max(self._credits - cost, min(self._credits, -DEBT_S * self._per_s))

    def wait_s(self, cost: float) -> float:
        """Return in how many seconds, at the earliest, such an operation can pass; 0 where that is not known."""
        left_s = self._ready_at - asyncio.get_running_loop().time()
        if left_s <= 0:
            return 0.0
        return left_s + max(0.0, self._wanted + self._need(cost) - self._credits - self._lease_size) / self._per_s

    def _need(self, cost: float) -> float:
        return min(cost, self._most)

    def _here(self) -> float:
        if self._credits > 0 and asyncio.get_running_loop().time() > self._leased_at + KEEP_S:
            self._credits = 0.0
        return self._credits

    async def _gathered(self, need: float, until: float) -> bool:
        """Take leases until that much is here; at once False if it cannot be by `until`."""
        self._here()
        now = asyncio.get_running_loop().time
        while (missing := need - self._credits) > ROUNDING:
            lease = await self._lease(missing)
            self._credits += lease.credits
            if not lease.credits:
                self._ready_at = now() + lease.wait_s
                if self._ready_at + max(0.0, missing - self._lease_size) / self._per_s > until:
                    return False
                await asyncio.sleep(lease.wait_s)
        return True

    async def _lease(self, missing: float) -> Lease:
        """Take what is missing, and as much beside that as the line wants, or as will be used soon, up to a piece.

        Where there is not that much, all of it is waited for: one question for many operations.
        """
        now = asyncio.get_running_loop().time()
        lasted_s = max(WAIT_MIN_S, now - self._leased_at)
        used_soon = self._leased * min(2.0, LEASE_S / lasted_s)
        least = min(self._lease_size, max(missing, self._wanted - self._credits, used_soon))
        wanted = max(missing, least)
        lease = await self._ask(wanted, least)
        if lease is None:
            lease = self._own_lease(wanted, least)
        if lease.credits:
            self._leased, self._leased_at = lease.credits, asyncio.get_running_loop().time()
        return lease

    def _own_lease(self, wanted: float, least: float) -> Lease:
        if self._fallbacks is not None:
            self._fallbacks.inc()
        for credit in (wanted, least):
            if self._own.try_take(credit):
                return Lease(credit)
        return Lease(0.0, max(WAIT_MIN_S, self._own.wait_s(least)))
