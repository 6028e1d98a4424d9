"""A token bucket: credits arrive at a fixed rate, and calls wait for them in a fair queue.

A waiting call takes one share of credits at a time and then joins the end of the queue again. A call that needs many
credits therefore delays others by at most one share. An operation that costs more than the bucket's capacity waits
until the bucket is full and leaves a debt, and later calls wait for it.
"""

import asyncio
import math
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence

import msgspec

ROUNDING = 1e-6
"""Tolerance for the rounding of fractional credits: a smaller deficit counts as none."""

DEBT_S = 10.0
"""Maximum debt, as the time until its credits arrive: one large record blocks a table no longer than this."""

SHARE_S = 0.1
"""The credits of this time are one share: the longest time that one waiting call delays the next."""

TIMER_MIN_S = 0.001
"""Shortest timer: the clock of an event loop may have this resolution."""

TIMER_LATENESS_S = 0.01
"""Delay of a timer that loses no credits: for waiting calls, the bucket fills this much above the burst."""


class Credits(ABC):
    """The credits of one limit, which gains `per_s` per second. Calls wait for them in a fair queue.

    A cost above `burst` is paid alone, when so many credits are available.
    """

    def __init__(self, per_s: float, burst: float, credit: float) -> None:
        self.burst = burst
        self._per_s = per_s
        self._credits = credit

    def try_take(self, cost: float) -> bool:
        """Take the credits if they are available and no call waits. Return whether they were taken."""
        if self._free() + ROUNDING < cost:
            return False
        self._credits -= cost
        return True

    def take_some(self, costs: Sequence[float]) -> int:
        """Pay as many of the first of these costs as there are credits for, if no call waits. Return their number."""
        count, cost = affordable(costs, self._free(), self.burst)
        self._credits -= cost
        return count

    @abstractmethod
    async def take(self, costs: Sequence[float], until: float) -> int:
        """Wait for credits to pay the first of these costs, and possibly more. Return their number, or 0.

        It is 0 if no credits arrive by `until`, a time of `time.monotonic`. A cancelled call has taken nothing.
        """

    def charge(self, cost: float) -> None:
        """Take credits that may not be available yet. Later calls wait for them, but never longer than `DEBT_S`."""
        self._update()
        self._credits = max(self._credits - cost, min(self._credits, -DEBT_S * self._per_s))

    @abstractmethod
    def wait_s(self, cost: float) -> float:
        """Return the seconds until, at the earliest, an operation of this cost can pass after all waiting calls."""

    @property
    @abstractmethod
    def _busy(self) -> bool:
        """Whether calls wait."""

    @abstractmethod
    def _update(self) -> None:
        """Update the available credits to the current time."""

    def _free(self) -> float:
        """Return the credits that a new call may take."""
        self._update()
        return -math.inf if self._busy else self._credits


def affordable(costs: Sequence[float], credit: float, burst: float) -> tuple[int, float]:
    """Return how many of the first of these costs the credit pays, and their sum.

    A cost above the bucket's capacity (`burst`) is paid alone, when the bucket is full.
    """
    total = 0.0
    for count, cost in enumerate(costs):
        if total + cost > credit + ROUNDING:
            return (count, total) if count or burst > credit + ROUNDING else (1, cost)
        total += cost
    return len(costs), total


class _Waiter(msgspec.Struct, frozen=True):
    """A waiting operation or share: its cost, the credits that must be available, and the future to resolve."""

    cost: float
    need: float
    granted: asyncio.Future[None]


class Bucket(Credits):
    """A bucket that gains `per_s` credits per second, up to `burst`. It starts full."""

    def __init__(self, per_s: float, burst: float) -> None:
        super().__init__(per_s, burst, burst)
        self._share = max(1.0, min(burst, per_s * SHARE_S))
        self._counted_at = -math.inf
        self._queue: deque[_Waiter] = deque()
        self._queued_cost = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def full(self) -> bool:
        """Return whether the bucket is full and has no queue, like a new one."""
        return self._free() + ROUNDING >= self.burst

    @property
    def _busy(self) -> bool:
        return bool(self._queue)

    async def take(self, costs: Sequence[float], until: float) -> int:
        """Wait for credits to pay the first of these costs, at most one share. Return their number.

        Return 0 immediately if the credits cannot be available by `until`.
        """
        self._update()
        available = self._credits - self._queued_cost + (until - self._counted_at) * self._per_s
        count, cost = affordable(costs, min(available, self._share), self.burst)
        if not count:
            count, cost = 1, costs[0]
            if available + ROUNDING < self._need(cost):
                return 0
        await self._wait_in_queue(cost)
        return count

    def wait_s(self, cost: float) -> float:
        """Return the seconds until an operation of this cost can pass, after all waiting calls."""
        self._update()
        return max(0.0, (self._queued_cost + self._need(cost) - self._credits) / self._per_s)

    def _need(self, cost: float) -> float:
        return min(cost, self.burst)

    async def _wait_in_queue(self, cost: float) -> None:
        waiter = _Waiter(cost, self._need(cost), asyncio.get_running_loop().create_future())
        self._queue.append(waiter)
        self._queued_cost += cost
        self._set_timer()
        try:
            await waiter.granted
        except asyncio.CancelledError:
            if waiter.granted.cancelled():
                self._queued_cost -= cost
            else:
                self._credits += cost
            self._grant()
            raise

    def _update(self) -> None:
        now = time.monotonic()
        most = self.burst + (self._per_s * TIMER_LATENESS_S if self._queue else 0)
        if self._credits < most:
            self._credits = min(most, self._credits + (now - self._counted_at) * self._per_s)
        self._counted_at = now

    def _grant(self) -> None:
        """Give the available credits to the first in the queue, and set a timer for the next."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._update()
        while self._queue:
            waiter = self._queue[0]
            if not waiter.granted.done():
                if self._credits + ROUNDING < waiter.need:
                    break
                self._credits -= waiter.cost
                self._queued_cost -= waiter.cost
                waiter.granted.set_result(None)
            self._queue.popleft()
        if not self._queue:
            self._queued_cost = 0.0  # Without the rounding errors of the sums.
        self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is None and self._queue:
            missing_s = (self._queue[0].need - self._credits) / self._per_s
            self._timer = asyncio.get_running_loop().call_later(max(TIMER_MIN_S, missing_s), self._grant)


class Rate(msgspec.Struct, frozen=True):
    """Credits per second, which may be a fraction, and the credits that can be used after a pause (`burst`).

    The default burst is the credits of one second, at least one.
    """

    per_s: float
    burst: float | None = None

    @property
    def burst_credits(self) -> float:
        """Return the burst, or its default."""
        return self.burst if self.burst is not None else max(1.0, self.per_s)

    def bucket(self) -> Bucket:
        """Return a full bucket with this rate."""
        return Bucket(self.per_s, self.burst_credits)

    def scaled(self, share: float) -> "Rate":
        """Return this fraction of the rate."""
        return Rate(self.per_s * share, max(1.0, self.burst_credits * share))
