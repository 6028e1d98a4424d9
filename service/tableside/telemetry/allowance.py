"""So many lines a second of each kind, and what was left out is told afterwards.

So that a log says that something goes wrong all the time without being filled by it.
"""

import asyncio
import logging
from collections import Counter

WINDOW_S = 1.0


class Allowance:
    """What may be logged within a second of each of several kinds; `per_s` lines of each."""

    def __init__(self, per_s: int, log: logging.Logger) -> None:
        self._per_s = per_s
        self._log = log
        self._taken: Counter[str] = Counter()
        self._left_out: Counter[str] = Counter()
        self._end: asyncio.TimerHandle | None = None

    def take(self, kind: str) -> bool:
        """Whether one more line may be written; if not, it is counted, and the count is logged within a second."""
        if self._end is None:
            self._end = asyncio.get_running_loop().call_later(WINDOW_S, self.renew)
        self._taken[kind] += 1
        if self._taken[kind] <= self._per_s:
            return True
        self._left_out[kind] += 1
        return False

    def renew(self) -> None:
        """Say what was left out, and begin again."""
        if self._end is not None:
            self._end.cancel()
            self._end = None
        for kind, count in self._left_out.items():
            self._log.warning("left out of the log: %s", kind, extra={"left_out": count})
        self._taken.clear()
        self._left_out.clear()
