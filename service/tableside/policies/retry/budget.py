"""How much may be tried again: a share of what is asked, so that a store that fails is not asked much more than usual.

Knows nothing of operations, nor of what fails.
"""

import math


class RetryBudget:
    """Repetitions are at most `share` of the operations asked in the last seconds, plus `per_s` a second.

    What is asked earns credit, which fades over `window_s`; repetitions spend it. Who has any may repeat a whole call,
    even one that is larger: it leaves a debt, and nothing is repeated until that is paid. So one lost connection does
    not fail a batch, and in the long run the share holds all the same.
    """

    def __init__(self, share: float = 0.2, per_s: float = 10.0, window_s: float = 10.0) -> None:
        if share < 0 or per_s < 0 or not window_s > 0:
            raise ValueError("a budget's share and rate are at least 0, its window above 0 s")
        self._share = share
        self._per_s = per_s
        self._window_s = window_s
        self._reserve = per_s * window_s
        self._credit = self._reserve
        self._counted_at = -math.inf

    def earn(self, count: int, now: float) -> None:
        """Take note that so many operations are asked for the first time, now (in seconds of any clock)."""
        self._fade(now)
        self._credit += self._share * count

    def spend(self, count: int, now: float) -> bool:
        """Return whether so many operations may be repeated, and take note that they are."""
        self._fade(now)
        if self._credit < 1:
            return False
        self._credit -= count
        return True

    def remaining(self, now: float) -> float:
        """Return how many operations might be repeated now; what is below 1 is that none may, and how much is owed."""
        self._fade(now)
        return self._credit

    def _fade(self, now: float) -> None:
        """Let time pass: credit comes up to the reserve, and fades above it."""
        passed_s = now - self._counted_at
        self._counted_at = now
        if self._credit > self._reserve:
            self._credit = self._reserve + (self._credit - self._reserve) * math.exp(-passed_s / self._window_s)
        else:
            self._credit = min(self._reserve, self._credit + self._per_s * passed_s)
