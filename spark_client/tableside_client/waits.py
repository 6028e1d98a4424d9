"""The time that a client waits for retries."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

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
