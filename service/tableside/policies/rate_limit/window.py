"""A window of credits in Redis, by the sliding window of the library `limits`, which counts whole numbers only.

A window is as many whole seconds as the burst is worth, and holds the credits that come in it; what was taken of the
one before fades. So in any time T no more is taken than comes in it and one window's credits. When a window's credits
were taken at once, nothing more comes until it is over.
"""

import math

import msgspec
from limits import RateLimitItemPerSecond
from limits.aio.storage import RedisStorage
from limits.aio.strategies import SlidingWindowCounterRateLimiter

from .policy import Rate

UNITS = 1000
"""So many of what the library counts are a credit."""

LATE_S = 0.001
"""Redis counts milliseconds."""


class Lease(msgspec.Struct, frozen=True):
    """How many credits were taken; if none, how long it takes until there are some."""

    credits: float
    wait_s: float = 0.0


class Window:
    """One direction of a table in Redis."""

    def __init__(self, storage: RedisStorage, limiter: SlidingWindowCounterRateLimiter, name: str, rate: Rate) -> None:
        self._storage = storage
        self._limiter = limiter
        self._name = name
        self._seconds = max(1, math.ceil(rate.at_once / rate.per_s))
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
        return Lease(0.0, LATE_S + self._free_in_s(max(1, enough - free), enough, before, before_s, here, here_s))

    def _free_in_s(self, missing: int, units: int, before: int, before_s: float, here: int, here_s: float) -> float:
        """Return when so many units are free: as the window before fades, or when this one is the one before."""
        if before and (fades_s := missing * self._seconds / before) <= before_s:
            return fades_s
        left_s = max(0.0, here_s - self._seconds)
        over = units - (self._item.amount - here)
        return left_s + (over * self._seconds / here if over > 0 else 0.0)
