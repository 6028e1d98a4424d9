"""Limits and backoff of retries, and the time that a client waits for them."""

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

_DOUBLINGS_MAX = 60  # a power of two beyond the range of a float is an error


@dataclass(frozen=True, slots=True)
class Retries:
    """Limits on the retries of one request.

    Waits grow exponentially with full jitter, and are at least as long as the service's `Retry-After`. With the
    defaults, requests that are safe to repeat survive a restart of the service.

    Attributes:
        attempts_max: The maximum number of attempts, including the first. Default: no limit.
        first_s: The upper limit of the first wait, in seconds. It doubles with each attempt.
        longest_s: The upper limit of every wait, in seconds, unless `Retry-After` is longer.
        total_s: The maximum time of the request with all its attempts, in seconds.
    """

    attempts_max: int | None = None
    first_s: float = 0.1
    longest_s: float = 2.0
    total_s: float = 120.0


DEFAULT_RETRIES = Retries()


class RetryBudget:
    """The remaining attempts and time of one request.

    Waits grow exponentially with full jitter ("Exponential Backoff And Jitter", Brooker 2015), and are never
    shorter than the service's `Retry-After`.
    """

    def __init__(
        self,
        retries: Retries,
        clock: Callable[[], float] = time.monotonic,
        uniform: Callable[[], float] = random.random,
    ) -> None:
        self._retries = retries
        self._clock = clock
        self._uniform = uniform
        self._deadline = clock() + retries.total_s
        self._attempts = 1

    def next_pause_s(self, retry_after_s: float | None) -> float | None:
        """Return the pause before the next attempt, in seconds. None if the attempts or the time are used up.

        It is at least `retry_after_s`.
        """
        if self._retries.attempts_max is not None and self._attempts >= self._retries.attempts_max:
            return None
        pause_s = max(self._backoff_s(), retry_after_s or 0.0)
        if self._clock() + pause_s > self._deadline:
            return None
        self._attempts += 1
        return pause_s

    def _backoff_s(self) -> float:
        ceiling_s = min(self._retries.longest_s, self._retries.first_s * 2.0 ** min(self._attempts - 1, _DOUBLINGS_MAX))
        return ceiling_s * self._uniform()


REPORT_INTERVAL_S = 5.0
"""A warning is logged each time that this much waiting has passed, in seconds."""

log = logging.getLogger(__name__)


class Waits:
    """Sums up the time of waits before retries, and logs a warning for every `REPORT_INTERVAL_S` of it. Thread-safe.

    Time while several calls wait counts once.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting = 0
        self._counted_until_s = 0.0
        self._total_s = 0.0
        self._reported_s = 0.0

    @property
    def total_s(self) -> float:
        """The time while at least one call waited so far, in seconds."""
        with self._lock:
            self._count()
            return self._total_s

    @contextmanager
    def waiting(self, reason: str) -> Iterator[None]:
        """Count the time of the `with` block as waiting. `reason` is the failure of the last attempt."""
        self._change_waiting(1)
        try:
            yield
        finally:
            self._change_waiting(-1)
        self._report(reason)

    def _change_waiting(self, change: int) -> None:
        with self._lock:
            self._count()
            self._waiting += change

    def _count(self) -> None:
        now_s = self._clock()
        if self._waiting:
            self._total_s += now_s - self._counted_until_s
        self._counted_until_s = now_s

    def _report(self, reason: str) -> None:
        with self._lock:
            if self._total_s - self._reported_s < REPORT_INTERVAL_S:
                return
            self._reported_s = self._total_s
        log.warning("waited %.1f s for retries so far; the last failure: %s", self._reported_s, reason)
