"""Callers that cannot wait any longer, noticed with one timer for all, which seldom has to be set."""

import asyncio
import math
from collections.abc import Callable

from .callers import Caller

TIMER_S = 0.001
"""How exact a timer of the event loop is: what is due within that is due."""


class Deadlines:
    """Those who wait, each until its deadline."""

    def __init__(self, expire: Callable[[Caller], None]) -> None:
        self._expire = expire
        self._callers: set[Caller] = set()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, caller: Caller) -> None:
        """See to it that `expire` is called with a caller that is still here at its deadline."""
        self._callers.add(caller)
        if self._timer is None or caller.until < self._timer.when():
            self._set(caller.until)

    def remove(self, caller: Caller) -> None:
        """Forget a caller. The timer stays: when it is over, it is set for those who wait then."""
        self._callers.discard(caller)

    def stop(self) -> None:
        """Let go of the timer if nobody waits."""
        if not self._callers:
            self._set(math.inf)

    def _set(self, until: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_at(until, self._look) if until < math.inf else None

    def _look(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        for caller in [each for each in self._callers if each.until <= now + TIMER_S]:
            self._callers.discard(caller)
            self._expire(caller)
        if self._callers:
            self._set(min(caller.until for caller in self._callers))
