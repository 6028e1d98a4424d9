"""An adaptive limit on concurrent requests: as many as the service answers without a long queue."""

import threading

START = 2
"""The first limit: the service has one request to work on while the next one is prepared."""

TARGET_S = 0.25
"""The duration of a request, in seconds, below which the limit grows: a quarter of the service's `logs.slow_s`."""

_CONGESTED = frozenset({"overloaded", "throttled", "deadline_exceeded"})


class RequestWindow:
    """The number of requests that one task keeps in flight, between 1 and `size_max`. Thread-safe.

    The number grows by one per round trip while requests take at most `TARGET_S`. It shrinks by a tenth with each
    slower request, and by half with each one that the service rejects because of its load. This is additive increase
    and multiplicative decrease (Chiu and Jain 1989). All tasks see the same queue of the service and have the same
    target, so that they converge to equal shares without communication. A target relative to the fastest request, as in
    TCP Vegas, would not do that: a task that starts while the service is busy never sees a fast request.
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
            self._size = min(max(self._next_size(duration_s, code), 1.0), self._size_max)

    def _next_size(self, duration_s: float, code: str | None) -> float:
        if code is not None:
            return self._size / 2 if code in _CONGESTED else self._size
        return self._size + 1 / self._size if duration_s <= TARGET_S else self._size * 0.9
