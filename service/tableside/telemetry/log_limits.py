"""Limits on log lines per second: by the place in the source, and by the kind of event.

A line that repeats for every request or every failed store call must not fill the log. The content of a line does not
count, so that callers cannot evade the limit by varying it.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable

SourceLine = tuple[str, int]
"""A file and a line in it."""

LINES_PER_S_MAX = 20
WINDOW_S = 1.0


class SourceLogLimiter:
    """Limits log lines by their place in the source. For one thread only."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._began = monotonic()
        self._lines: Counter[SourceLine] = Counter()

    def allow(self, place: SourceLine) -> bool:
        """Return whether one more line from this place may be logged in this second. If not, count it."""
        self._lines[place] += 1
        return self._lines[place] <= LINES_PER_S_MAX

    def suppressed_counts(self) -> dict[SourceLine, int]:
        """Return the number of suppressed lines by place, once the second has ended. Usually there are none."""
        now = self._monotonic()
        if now - self._began < WINDOW_S:
            return {}
        lines, self._lines, self._began = self._lines, Counter(), now
        return {place: count - LINES_PER_S_MAX for place, count in lines.items() if count > LINES_PER_S_MAX}


class EventLogLimiter:
    """Limits log lines by kind of event: `per_s` lines of each kind per second."""

    def __init__(self, per_s: int, log: logging.Logger) -> None:
        self._per_s = per_s
        self._log = log
        self._taken: Counter[str] = Counter()
        self._left_out: Counter[str] = Counter()
        self._end: asyncio.TimerHandle | None = None

    def allow(self, kind: str) -> bool:
        """Return whether one more line may be logged. If not, count it. The count is logged within a second."""
        if self._end is None:
            self._end = asyncio.get_running_loop().call_later(WINDOW_S, self.log_suppressed)
        self._taken[kind] += 1
        if self._taken[kind] <= self._per_s:
            return True
        self._left_out[kind] += 1
        return False

    def log_suppressed(self) -> None:
        """Log the number of suppressed lines, and start a new second."""
        if self._end is not None:
            self._end.cancel()
            self._end = None
        for kind, count in self._left_out.items():
            self._log.warning("left out of the log: %s", kind, extra={"left_out": count})
        self._taken.clear()
        self._left_out.clear()
