"""Limits and backoff of retries, the time that a client waits for them, and an adaptive limit on requests."""

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
    """The remaining attempts and time of one request. See "Exponential Backoff And Jitter" (Brooker 2015)."""

    def __init__(
        self,
        retries: Retries,
        clock: Callable[[], float] = time.monotonic,
        uniform: Callable[[], float] = random.random,
    ) -> None:
        self._retries, self._clock, self._uniform = retries, clock, uniform
        self._deadline = clock() + retries.total_s
        self._attempts = 1

    def next_pause_s(self, retry_after_s: float | None) -> float | None:
        """Return the pause before the next attempt, in seconds, None if the attempts or the time are used up."""
        if self._retries.attempts_max is not None and self._attempts >= self._retries.attempts_max:
            return None
        doubled_s = self._retries.first_s * 2.0 ** min(self._attempts - 1, _DOUBLINGS_MAX)
        pause_s = max(min(self._retries.longest_s, doubled_s) * self._uniform(), retry_after_s or 0.0)
        if self._clock() + pause_s > self._deadline:
            return None
        self._attempts += 1
        return pause_s


REPORT_INTERVAL_S = 5.0
"""A warning is logged each time that this much waiting has passed, in seconds."""

log = logging.getLogger(__name__)


class Waits:
    """Counts the time while at least one call waits, and warns for every `REPORT_INTERVAL_S` of it. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting = 0
        self._counted_until_s = self._total_s = self._reported_s = 0.0

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
        with self._lock:
            if self._total_s - self._reported_s < REPORT_INTERVAL_S:
                return
            self._reported_s = self._total_s
        log.warning("waited %.1f s for retries so far; the last failure: %s", self._reported_s, reason)

    def _change_waiting(self, change: int) -> None:
        with self._lock:
            self._count()
            self._waiting += change

    def _count(self) -> None:
        now_s = self._clock()
        if self._waiting:
            self._total_s += now_s - self._counted_until_s
        self._counted_until_s = now_s


START = 2
"""The first limit: the service has one request to work on while the next one is prepared."""

TARGET_S = 0.25
"""The duration of a request, in seconds, below which the limit grows: a quarter of the service's `logs.slow_s`."""

_CONGESTED = frozenset({"overloaded", "throttled", "deadline_exceeded"})


class RequestWindow:
    """The number of requests that one task keeps in flight, between 1 and `size_max`. Thread-safe.

    The number grows by one per round trip while requests take at most `TARGET_S`. It shrinks by a tenth with each
    slower request, and by half with each one that the service rejects because of its load (Chiu and Jain 1989). As all
    tasks have the same target, they converge to equal shares.
    """

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._size = float(min(START, size_max))
        self._lock = threading.Lock()

    @property
    def size(self) -> int:
        """The current limit."""
        return int(self._size)

    def observe(self, duration_s: float, code: str | None = None) -> None:
        """Adapt the limit to one attempt of a request: its duration, and the code of its first retriable failure."""
        with self._lock:
            size = self._size
            if code is not None:
                size = size / 2 if code in _CONGESTED else size
            else:
                size = size + 1 / size if duration_s <= TARGET_S else size * 0.9
            self._size = min(max(size, 1.0), self._size_max)
