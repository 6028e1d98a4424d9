"""Limits on the requests, operations and bytes in flight in one process.

Work above a limit is shed at once, before any of it is attempted.
"""

from prometheus_client import CollectorRegistry, Counter, Gauge

from ..core.errors import Overloaded


class AdmissionMetrics:
    """The metrics of one process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.in_flight = Gauge(
            "tableside_in_flight",
            "Requests, operations and bytes of request bodies in flight.",
            ("what",),
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.shed = Counter(
            "tableside_shed",
            "Requests that were shed, by the limit that they exceeded.",
            ("reason",),
            registry=registry,
        )


class InFlightLimit:
    """The amount in flight of one resource (`in_flight`), and its limit (`maximum`)."""

    def __init__(self, what: str, most: int, metrics: AdmissionMetrics) -> None:
        self.maximum = most
        self.what = what
        self._shed = metrics.shed.labels(what)
        self.in_flight = 0
        self._gauge = metrics.in_flight.labels(what)

    def enter(self, count: int) -> None:
        """Admit so much. Raise Overloaded if that exceeds the limit, unless nothing else is in flight."""
        self.add(count, 0)

    def add(self, count: int, own: int) -> None:
        """Admit so much more for a request that has `own` already. It may exceed the limit if alone."""
        if self.in_flight > own and self.in_flight + count > self.maximum:
            raise self._overloaded()
        self.in_flight += count

    def check(self) -> None:
        """Raise Overloaded if the limit is reached."""
        if self.in_flight >= self.maximum:
            raise self._overloaded()

    def shed(self) -> None:
        """Count a request that is shed because of this limit."""
        self._shed.inc()

    def leave(self, count: int) -> None:
        """Release so much of the admitted amount."""
        self.in_flight -= count

    def sample(self) -> None:
        """Update the gauge."""
        self._gauge.set(self.in_flight)

    def _overloaded(self) -> Overloaded:
        self.shed()
        return Overloaded(f"{self.in_flight} {self.what} are in flight, of {self.maximum}", retry_after_s=1)


class Reservation:
    """The part of a limit that one request takes, which can grow while its body arrives."""

    __slots__ = ("_bound", "_count")

    def __init__(self, bound: InFlightLimit) -> None:
        self._bound = bound
        self._count = 0

    def grow_to(self, count: int) -> None:
        """Increase the reservation to `count` if it is smaller. Raise Overloaded if that exceeds the limit."""
        if count > self._count:
            self._bound.add(count - self._count, self._count)
            self._count = count

    def shrink_to(self, count: int) -> None:
        """Reduce the reservation to `count` if it is larger."""
        if count < self._count:
            self._bound.leave(self._count - count)
            self._count = count

    def leave(self) -> None:
        """Release the whole reservation."""
        if self._count:
            self._bound.leave(self._count)
            self._count = 0


class InFlight:
    """The limits on the work in flight in one process."""

    def __init__(self, metrics: AdmissionMetrics, *, requests_max: int, operations_max: int, bytes_max: int) -> None:
        self.requests = InFlightLimit("requests", requests_max, metrics)
        self.operations = InFlightLimit("operations", operations_max, metrics)
        self.bytes = InFlightLimit("bytes", bytes_max, metrics)

    def change(self, *, requests_max: int, operations_max: int, bytes_max: int) -> None:
        """Change the limits."""
        self.requests.maximum, self.operations.maximum, self.bytes.maximum = requests_max, operations_max, bytes_max

    def sample(self) -> None:
        """Update the gauges."""
        for bound in (self.requests, self.operations, self.bytes):
            bound.sample()
