"""Limits on the requests, operations and bytes in flight in one process.

Work above a limit is shed immediately, before any of it is attempted.
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
        self.in_store = Gauge(
            "tableside_store_in_flight",
            "The same for each store, if there are several.",
            ("store", "what"),
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
    """The amount in flight of one resource, and its limit (`maximum`). `in_stores` is the part in flight in stores."""

    def __init__(self, what: str, most: int, metrics: AdmissionMetrics) -> None:
        self.maximum = most
        self.in_stores = 0
        self.what = what
        self._shed = metrics.shed.labels(what)
        self.in_flight = 0
        self._gauge = metrics.in_flight.labels(what)

    def enter(self, count: int) -> None:
        """Admit so much. Raise Overloaded if that exceeds the limit, unless nothing else is in flight."""
        if self.in_flight and self.in_flight + count > self.maximum:
            raise self.overloaded()
        self.in_flight += count

    def add(self, count: int, own: int) -> None:
        """Admit so much more for a request that has `own` already. It may exceed the limit if alone."""
        if self.in_flight > own and self.in_flight + count > self.maximum:
            raise self.overloaded()
        self.in_flight += count

    def check(self) -> None:
        """Raise Overloaded if the limit is reached."""
        if self.in_flight >= self.maximum:
            raise self.overloaded()

    def overloaded(self) -> Overloaded:
        """Count a request that is shed because of this limit, and return its error."""
        self._shed.inc()
        return Overloaded(f"{self.in_flight} {self.what} are in flight, of {self.maximum}", retry_after_s=1)

    def leave(self, count: int) -> None:
        """Release so much of the admitted amount."""
        self.in_flight -= count

    def sample(self) -> None:
        """Update the gauge."""
        self._gauge.set(self.in_flight)


class Reservation:
    """One request's share of the limits: a slot, and the bytes of its body, which can grow while it arrives."""

    __slots__ = ("_bytes", "_has_slot", "_limits")

    def __init__(self, limits: "InFlight") -> None:
        self._limits = limits
        self._has_slot = False
        self._bytes = 0

    def enter(self, body_bytes: int) -> None:
        """Take a slot and the bytes of a body. Raise Overloaded above a limit. Call `leave` in any case."""
        self.take_slot()
        if body_bytes:
            self.grow_body_to(body_bytes)

    def take_slot(self) -> None:
        """Count the request as in flight if it is not yet. Raise Overloaded above the limit."""
        if not self._has_slot:
            self._limits.requests.enter(1)
            self._has_slot = True

    def grow_body_to(self, body_bytes: int) -> None:
        """Count so many bytes of the body, if more than before. Raise Overloaded above the limit."""
        if body_bytes > self._bytes:
            self._limits.bytes.add(body_bytes - self._bytes, self._bytes)
            self._bytes = body_bytes

    def step_aside(self, body_bytes: int) -> None:
        """Release the slot and the bytes of the body, except this many."""
        self._release_slot()
        if body_bytes < self._bytes:
            self._limits.bytes.leave(self._bytes - body_bytes)
            self._bytes = body_bytes

    def leave(self) -> None:
        """Release everything. A second call does nothing."""
        if self._has_slot:
            self._release_slot()
        if self._bytes:
            self._limits.bytes.leave(self._bytes)
            self._bytes = 0

    def _release_slot(self) -> None:
        if self._has_slot:
            self._limits.requests.leave(1)
            self._has_slot = False


class InFlight:
    """The limits on the work in flight in one process.

    One store may have `store_share_max` of the work that the limits leave for it besides the other stores.
    """

    def __init__(
        self,
        metrics: AdmissionMetrics,
        *,
        requests_max: int,
        operations_max: int,
        bytes_max: int,
        store_share_max: float = 1.0,
    ) -> None:
        self.metrics = metrics
        self.store_share_max = store_share_max
        self.requests = InFlightLimit("requests", requests_max, metrics)
        self.operations = InFlightLimit("operations", operations_max, metrics)
        self.bytes = InFlightLimit("bytes", bytes_max, metrics)

    def exhausted(self) -> InFlightLimit | None:
        """Return a limit that leaves no room for any other request, None if there is room."""
        if self.requests.in_flight >= self.requests.maximum:
            return self.requests
        return self.operations if self.operations.in_flight >= self.operations.maximum else None

    def change(self, *, requests_max: int, operations_max: int, bytes_max: int, store_share_max: float = 1.0) -> None:
        """Change the limits."""
        self.store_share_max = store_share_max
        self.requests.maximum, self.operations.maximum, self.bytes.maximum = requests_max, operations_max, bytes_max

    def sample(self) -> None:
        """Update the gauges."""
        for bound in (self.requests, self.operations, self.bytes):
            bound.sample()
