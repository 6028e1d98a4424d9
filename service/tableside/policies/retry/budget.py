"""The retry budget: limits retries to a fraction of the operations, so that they hardly add load to a failing store."""

import math


class RetryBudget:
    """Limits retries to the fraction `share` of recent operations, plus `per_s` per second.

    New operations earn credit, which decays over `window_s`. Retries spend it. With any credit left, a whole call may
    be retried, even a larger one: it leaves a debt, and no call is retried until the debt is paid. So one lost
    connection does not fail a batch, and the fraction is still kept on average.
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
        """Record so many new operations. `now` is in seconds of any clock."""
        self._update(now)
        self._credit += self._share * count

    def spend(self, count: int, now: float) -> bool:
        """Return whether so many operations may be retried, and if so, spend the credit."""
        self._update(now)
        if self._credit < 1:
            return False
        self._credit -= count
        return True

    def remaining(self, now: float) -> float:
        """Return how many operations could be retried now. Below 1, none can, and a negative number is the debt."""
        self._update(now)
        return self._credit

    def _update(self, now: float) -> None:
        """Update the credit to `now`: it grows up to the reserve, and decays above it."""
        passed_s = now - self._counted_at
        self._counted_at = now
        if self._credit > self._reserve:
            self._credit = self._reserve + (self._credit - self._reserve) * math.exp(-passed_s / self._window_s)
        else:
            self._credit = min(self._reserve, self._credit + self._per_s * passed_s)
