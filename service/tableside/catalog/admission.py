"""Limits on the requests, operations and bytes in flight in one process, and the share that one store may take.

Work above a limit is shed immediately, before any of it is attempted. Requests to a store that hangs stay in flight
until their deadlines. Without a share they would take every slot, and the service would reject requests to its other
stores.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge

from ..core import NO_DEADLINE, Budget, Operation, Outcome, Page, Scan
from ..core.errors import Overloaded
from ..core.operations import size_bytes
from ..core.store import Policy


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


class Share:
    """One store's share of one in-flight limit: a fraction of the part that the other stores leave free.

    A store with nothing in flight may exceed it, as a single request may exceed a limit.
    """

    def __init__(self, limits: InFlight, limit: InFlightLimit, store: str) -> None:
        self._limits = limits
        self._limit = limit
        self._store = store
        self._in_flight = 0
        self._shed = limits.metrics.shed.labels(f"store_{limit.what}")
        self._gauge = limits.metrics.in_store.labels(store, limit.what)

    def check(self, count: int) -> None:
        """Raise Overloaded if so much more exceeds the share."""
        in_flight, limit = self._in_flight, self._limit
        free = limit.maximum - (limit.in_stores - in_flight)
        if count and in_flight and in_flight + count > self._limits.store_share_max * free:
            self._shed.inc()
            most = f"{in_flight} of at most {limit.maximum} {limit.what}"
            detail = f"store {self._store!r}: {most} are in flight, and its share (store_share_max) allows no more"
            raise Overloaded(detail, retry_after_s=1)

    def add(self, count: int) -> None:
        """Count so much more as in flight in the store. A negative number releases it."""
        self._in_flight += count
        self._limit.in_stores += count

    def sample(self) -> None:
        """Update the gauge."""
        self._gauge.set(self._in_flight)


class StoreInFlight:
    """The requests, operations and bytes in flight in one store."""

    def __init__(self, limits: InFlight, store: str) -> None:
        self._requests, self._operations, self._bytes = self._shares = (
            Share(limits, limits.requests, store),
            Share(limits, limits.operations, store),
            Share(limits, limits.bytes, store),
        )

    def check(self, operations: int = 1, body_bytes: int = 0) -> None:
        """Raise Overloaded if a request with so many operations and bytes exceeds a share."""
        self._requests.check(1)
        self._operations.check(operations)
        self._bytes.check(body_bytes)

    def add(self, operations: int, body_bytes: int) -> None:
        """Count a request that has been checked as in flight."""
        self._requests.add(1)
        self._operations.add(operations)
        self._bytes.add(body_bytes)

    def leave(self, operations: int, body_bytes: int) -> None:
        """Stop counting a request."""
        self._requests.add(-1)
        self._operations.add(-operations)
        self._bytes.add(-body_bytes)

    @contextmanager
    def entered(self, operations: int = 0, body_bytes: int = 0) -> Iterator[None]:
        """Count a request as in flight within the context. Raise Overloaded if it exceeds a share."""
        self.check(operations, body_bytes)
        self.add(operations, body_bytes)
        try:
            yield
        finally:
            self.leave(operations, body_bytes)

    def sample(self) -> None:
        """Update the gauges."""
        for share in self._shares:
            share.sample()


class PartitionLimit(Policy):
    """A partition with its store's share of the work in flight. It rejects operations beyond the share one by one."""

    def __init__(self, inner: Policy, in_flight: StoreInFlight) -> None:
        super().__init__(inner)
        self._in_flight = in_flight

    async def apply(self, operations: Sequence[Operation], budget: Budget = NO_DEADLINE) -> Sequence[Outcome]:
        """Apply the operations, or return Overloaded for all of them."""
        try:
            with self._in_flight.entered(len(operations), sum(map(size_bytes, operations))):
                return await self._inner.apply(operations, budget)
        except Overloaded as error:
            return [error] * len(operations)

    async def scan(self, scan: Scan) -> Page:
        """Scan the partition. Raise Overloaded beyond the share."""
        with self._in_flight.entered(1):
            return await self._inner.scan(scan)

    async def splits(self, count_max: int) -> list[bytes]:
        """Return the splits of the partition. Raise Overloaded beyond the share."""
        with self._in_flight.entered(1):
            return await self._inner.splits(count_max)
