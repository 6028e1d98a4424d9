"""A token bucket: credits arrive at a fixed rate, and calls wait for them in a fair queue.

A waiting call takes one share of credits at a time and then joins the end of the queue again. A call that needs many
credits therefore delays others by at most one share.
"""

import asyncio
import math
import time
from collections import deque

import msgspec

ROUNDING = 1e-6
"""Tolerance for the rounding of fractional credits: a smaller deficit counts as none."""

SHARE_S = 0.1
"""The credits of this time are one share: the longest time that one waiting call delays the next."""

TIMER_MIN_S = 0.001
"""Shortest timer: the clock of an event loop may have this resolution."""

TIMER_LATENESS_S = 0.01
"""Delay of a timer that loses no credits: for waiting calls, the bucket fills this much above the burst."""


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

    def scaled(self, share: float) -> "Rate":
        """Return this fraction of the rate."""
        return Rate(self.per_s * share, max(1.0, self.burst_credits * share))


class Bucket:
    """A bucket that gains credits at a rate, up to its burst. It starts full. An operation costs one credit."""

    def __init__(self, rate: Rate) -> None:
        self._per_s = rate.per_s
        self._burst = self._credits = rate.burst_credits
        self._share = max(1, int(min(self._burst, self._per_s * SHARE_S)))
        self._counted_at = -math.inf
        # The credits of each waiting share, and the future to resolve.
        self._queue: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._queued = 0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def full(self) -> bool:
        """Return whether the bucket is full and has no queue, like a new one."""
        self._update()
        return not self._queue and self._credits + ROUNDING >= self._burst

    def take_now(self, count: int) -> int:
        """Take up to so many credits, as far as they are available and no call waits. Return their number."""
        self._update()
        taken = 0 if self._queue else min(count, int(self._credits + ROUNDING))
        self._credits -= taken
        return taken

    async def take(self, count: int, until: float) -> int:
        """Wait for up to so many credits, at most one share. Return the number of those taken.

        Return 0 immediately if none can arrive by `until`, a time of `time.monotonic`. A cancelled call takes nothing.
        """
        self._update()
        arriving = self._credits - self._queued + (until - self._counted_at) * self._per_s
        count = int(min(count, self._share, arriving + ROUNDING))
        if count < 1:
            return 0
        granted = asyncio.get_running_loop().create_future()
        self._queue.append((count, granted))
        self._queued += count
        self._set_timer()
        try:
            await granted
        except asyncio.CancelledError:
            if granted.cancelled():
                self._queued -= count
            else:
                self._credits += count
            self._grant()
            raise
        return count

    def wait_s(self) -> float:
        """Return the seconds until another operation can pass, after all waiting calls."""
        self._update()
        return max(0.0, (self._queued + 1 - self._credits) / self._per_s)

    def _update(self) -> None:
        now = time.monotonic()
        most = self._burst + (self._per_s * TIMER_LATENESS_S if self._queue else 0)
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
            count, granted = self._queue[0]
            if not granted.done():
                if self._credits + ROUNDING < count:
                    break
                self._credits -= count
                self._queued -= count
                granted.set_result(None)
            self._queue.popleft()
        self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is None and self._queue:
            missing_s = (self._queue[0][0] - self._credits) / self._per_s
            self._timer = asyncio.get_running_loop().call_later(max(TIMER_MIN_S, missing_s), self._grant)
