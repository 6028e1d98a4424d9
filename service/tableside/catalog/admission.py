"""How much of the service is under way, in requests, operations and bytes, and what is too much.

What comes above a bound is shed at once, and nothing of it is attempted. Knows nothing of HTTP or of tables.
"""

from prometheus_client import CollectorRegistry, Counter, Gauge

from ..core.errors import Overloaded


class AdmissionMetrics:
    """The metrics of one process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.in_flight = Gauge(
            "tableside_in_flight",
            "What is under way, of requests, operations and bytes of requests' bodies.",
            ("what",),
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.shed = Counter(
            "tableside_shed",
            "Requests that were refused at once, by what there was too much of.",
            ("reason",),
            registry=registry,
        )


class InFlightLimit:
    """One measure of what is under way, and how much of it there may be: `under_way` and `most`."""

    def __init__(self, what: str, most: int, metrics: AdmissionMetrics) -> None:
        self.maximum = most
        self.what = what
        self._shed = metrics.shed.labels(what)
        self.in_flight = 0
        self._gauge = metrics.in_flight.labels(what)

    def enter(self, count: int) -> None:
        """Let so much in. Raise Overloaded if that would be too much, save where nothing else is under way."""
        self.add(count, 0)

    def add(self, count: int, own: int) -> None:
        """Let so much more in for whoever has `own` in already, which is nothing else."""
        if self.in_flight > own and self.in_flight + count > self.maximum:
            raise self._too_much()
        self.in_flight += count

    def check(self) -> None:
        """Raise Overloaded if nothing more could be let in."""
        if self.in_flight >= self.maximum:
            raise self._too_much()

    def shed(self) -> None:
        """Count a request that is refused because of this."""
        self._shed.inc()

    def leave(self, count: int) -> None:
        """Let go of what was let in."""
        self.in_flight -= count

    def sample(self) -> None:
        """Show in the metrics how much is under way."""
        self._gauge.set(self.in_flight)

    def _too_much(self) -> Overloaded:
        self.shed()
        return Overloaded(f"{self.in_flight} {self.what} are in flight, of {self.maximum}", retry_after_s=1)


class Reservation:
    """A part of what is under way that grows: as much as is declared, or as there is when that is more."""

    __slots__ = ("_bound", "_count")

    def __init__(self, bound: InFlightLimit) -> None:
        self._bound = bound
        self._count = 0

    def grow_to(self, count: int) -> None:
        """Let as much in as is missing to this. Raise Overloaded if that would be too much."""
        if count > self._count:
            self._bound.add(count - self._count, self._count)
            self._count = count

    def shrink_to(self, count: int) -> None:
        """Let go of what is more than this."""
        if count < self._count:
            self._bound.leave(self._count - count)
            self._count = count

    def leave(self) -> None:
        """Let go of all of it."""
        if self._count:
            self._bound.leave(self._count)
            self._count = 0


class InFlight:
    """What is under way in one process."""

    def __init__(self, metrics: AdmissionMetrics, *, requests_max: int, operations_max: int, bytes_max: int) -> None:
        self.requests = InFlightLimit("requests", requests_max, metrics)
        self.operations = InFlightLimit("operations", operations_max, metrics)
        self.bytes = InFlightLimit("bytes", bytes_max, metrics)

    def change(self, *, requests_max: int, operations_max: int, bytes_max: int) -> None:
        """Let as much in as this from now on."""
        self.requests.maximum, self.operations.maximum, self.bytes.maximum = requests_max, operations_max, bytes_max

    def sample(self) -> None:
        """Show in the metrics how much is under way."""
        for bound in (self.requests, self.operations, self.bytes):
            bound.sample()
