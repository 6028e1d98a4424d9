"""A bucket of credits that fills at a rate, and a fair line of those who wait for some.

Who waits takes a share at a time and then stands at the end of the line again, so one who wants many holds up nobody
for longer than one share takes. Knows nothing of operations.
"""

import asyncio
import math
from collections import deque

import msgspec

SHARE_S = 0.1
"""How long the bucket may fill for one share: the longest that one who waits ahead takes up."""

TICK_S = 0.001
"""Clocks of event loops may be as coarse as this; a timer is never shorter."""

LATE_S = 0.01
"""How late a timer may be with nothing lost: what came meanwhile is kept for those who wait, even above the burst."""

ROUNDING = 1e-6


class _Turn(msgspec.Struct, frozen=True, gc=False):
    """A place in the line: how many credits are waited for, and who is told."""

    count: int
    come: asyncio.Future[None]


class Bucket:
    """Credits: `per_s` come each second, and `burst` are kept at most, with which it starts."""

    def __init__(self, per_s: float, burst: float) -> None:
        self._per_s = per_s
        self._burst = burst
        self._share = max(1, int(min(burst, per_s * SHARE_S)))
        self._credits = burst
        self._counted_at = -math.inf
        self._line: deque[_Turn] = deque()
        self._wanted = 0
        self._timer: asyncio.TimerHandle | None = None

    def take_all(self, count: int) -> bool:
        """Take so many credits if they are there and nobody waits."""
        self._fill()
        if self._wanted or self._credits + ROUNDING < count:
            return False
        self._credits -= count
        return True

    async def take(self, wanted: int, until: float) -> int:
        """Wait for credits and return how many there were, 1 to `wanted`; at once 0 if not one can come by `until`.

        `until` is a time of the running loop's clock. Who is cancelled while waiting has taken nothing.
        """
        self._fill()
        if not self._wanted and (there := int(self._credits + ROUNDING)) > 0:
            self._credits -= (taken := min(there, wanted))
            return taken
        by_then = self._credits - self._wanted + (until - self._counted_at) * self._per_s
        count = int(min(by_then + ROUNDING, wanted, self._share))
        if count < 1:
            return 0
        await self._stand_in_line(count)
        return count

    def give_back(self, count: int) -> None:
        """Put back credits that were taken and not used."""
        self._credits += count
        self._serve()

    def wait_s(self) -> float:
        """Return how many seconds from now one more credit comes, after all that are waited for."""
        self._fill()
        return max(0.0, (self._wanted + 1 - self._credits) / self._per_s)

    async def _stand_in_line(self, count: int) -> None:
        turn = _Turn(count, asyncio.get_running_loop().create_future())
        self._line.append(turn)
        self._wanted += count
        self._arm()
        try:
            await turn.come
        except asyncio.CancelledError:
            if turn.come.cancelled():
                self._wanted -= count
                self._serve()
            else:
                self.give_back(count)
            raise

    def _fill(self) -> None:
        now = asyncio.get_running_loop().time()
        most = self._burst + (self._per_s * LATE_S if self._wanted else 0)
        if self._credits < most:
            self._credits = min(most, self._credits + (now - self._counted_at) * self._per_s)
        self._counted_at = now

    def _serve(self) -> None:
        """Give the credits that are there to those whose turn it is, and come back for the next."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._fill()
        while self._line:
            turn = self._line[0]
            if not turn.come.done():
                if self._credits + ROUNDING < turn.count:
                    break
                self._credits -= turn.count
                self._wanted -= turn.count
                turn.come.set_result(None)
            self._line.popleft()
        self._arm()

    def _arm(self) -> None:
        if self._timer is None and self._line:
            missing_s = (self._line[0].count - self._credits) / self._per_s
            self._timer = asyncio.get_running_loop().call_later(max(TICK_S, missing_s), self._serve)
