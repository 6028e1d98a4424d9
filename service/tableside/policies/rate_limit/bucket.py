"""A bucket of credits that fills at a rate, and a fair line of those who wait for some.

Who waits takes a share at a time and then stands at the end of the line again, so one who wants many holds up nobody
for longer than one share takes. What costs more than the bucket holds waits until it is full and leaves a debt, which
whoever comes next waits for. Knows nothing of operations.
"""

import asyncio
import math
from collections import deque
from collections.abc import Sequence

import msgspec

from .credits import DEBT_S, ROUNDING, affordable

SHARE_S = 0.1
"""How long the bucket may fill for one share: the longest that one who waits ahead takes up."""

TIMER_MIN_S = 0.001
"""Clocks of event loops may be as coarse as this; a timer is never shorter."""

TIMER_LATENESS_S = 0.01
"""How late a timer may be with nothing lost: what came meanwhile is kept for those who wait, even above the burst."""


class _Waiter(msgspec.Struct, frozen=True):
    """A place in the line: what it costs, how much of it has to be there, and who is told."""

    cost: float
    need: float
    granted: asyncio.Future[None]


class Bucket:
    """Credits: `per_s` come each second, and `burst` are kept at most, with which it starts."""

    def __init__(self, per_s: float, burst: float) -> None:
        self.burst = burst
        self._per_s = per_s
        self._share = max(1.0, min(burst, per_s * SHARE_S))
        self._credits = burst
        self._counted_at = -math.inf
        self._queue: deque[_Waiter] = deque()
        self._wanted = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def full(self) -> bool:
        """Whether it is as if it had never been used."""
        self._fill()
        return not self._queue and self._credits + ROUNDING >= self.burst

    def try_take(self, cost: float) -> bool:
        """Take so many credits if they are there and nobody waits."""
        self._fill()
        if self._queue or self._credits + ROUNDING < cost:
            return False
        self._credits -= cost
        return True

    def take_some(self, costs: Sequence[float]) -> int:
        """Take what pays the first of these that there are credits for, if nobody waits, and return how many."""
        self._fill()
        if self._queue:
            return 0
        count, cost = affordable(costs, self._credits, self.burst)
        self._credits -= cost
        return count

    async def take(self, costs: Sequence[float], until: float) -> int:
        """Wait for a share of what pays these, and return for how many; at once 0 if it cannot be there by `until`."""
        self._fill()
        by_then = self._credits - self._wanted + (until - self._counted_at) * self._per_s
        count, cost = affordable(costs, min(by_then, self._share), self.burst)
        if not count:
            count, cost = 1, costs[0]
            if by_then + ROUNDING < self._need(cost):
                return 0
        await self._wait_in_queue(cost)
        return count

    def refund(self, cost: float) -> None:
        """Put back credits that were taken and not used."""
        self._credits += cost
        self._grant()

    def charge(self, cost: float) -> None:
        """Take credits that may not be there yet; who comes next waits for them."""
        self._fill()
        self._credits = max(self._credits - cost, min(self._credits, -DEBT_S * self._per_s))

    def wait_s(self, cost: float) -> float:
        """Return how many seconds from now such an operation can pass, after all who wait."""
        self._fill()
        return max(0.0, (self._wanted + self._need(cost) - self._credits) / self._per_s)

    def _need(self, cost: float) -> float:
        return min(cost, self.burst)

    async def _wait_in_queue(self, cost: float) -> None:
        turn = _Waiter(cost, self._need(cost), asyncio.get_running_loop().create_future())
        self._queue.append(turn)
        self._wanted += cost
        self._set_timer()
        try:
            await turn.granted
        except asyncio.CancelledError:
            if turn.granted.cancelled():
                self._wanted -= cost
                self._grant()
            else:
                self.refund(cost)
            raise

    def _fill(self) -> None:
        now = asyncio.get_running_loop().time()
        most = self.burst + (self._per_s * TIMER_LATENESS_S if self._queue else 0)
        if self._credits < most:
            self._credits = min(most, self._credits + (now - self._counted_at) * self._per_s)
        self._counted_at = now

    def _grant(self) -> None:
        """Give the credits that are there to those whose turn it is, and come back for the next."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._fill()
        while self._queue:
            turn = self._queue[0]
            if not turn.granted.done():
                if self._credits + ROUNDING < turn.need:
                    break
                self._credits -= turn.cost
                self._wanted -= turn.cost
                turn.granted.set_result(None)
            self._queue.popleft()
        if not self._queue:
            self._wanted = 0.0  # Exactly, whatever rounding has left.
        self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is None and self._queue:
            missing_s = (self._queue[0].need - self._credits) / self._per_s
            self._timer = asyncio.get_running_loop().call_later(max(TIMER_MIN_S, missing_s), self._grant)
