"""Limits on the requests, operations and bytes in flight in one process, and the share of one store or caller.

Work above a limit is shed immediately, before any of it is attempted. Requests to a store that hangs stay in flight
until their deadlines. Without a share they would take every slot, and the service would reject requests to its other
stores. One caller with many requests would displace the other callers likewise.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge

from ..core import NO_DEADLINE, Budget, Operation, Outcome, Page, Scan
from ..core.errors import Overloaded
from ..core.operations import size_bytes
from ..core.store import Policy
from ..settings import LimitSettings


class InFlightLimit:
    """The amount in flight of one resource, its limit (`maximum`), and the shares of stores and callers.

    A caller without a name has no share. While callers may use the whole limit, what enters is not counted for them.
    """

    def __init__(self, what: str, shed: Counter) -> None:
        self.what = what
        self.maximum = 0
        self.in_flight = 0
        self.stores, self.callers = Shares("store", self, shed), Shares("caller", self, shed)
        self._shed = shed.labels(what)

    def enter(self, count: int, caller: str = "", own: int = 0) -> None:
        """Admit so much more for a request that has `own` already. Raise Overloaded if that exceeds the limit.

        A request may exceed the limit if nothing else is in flight.
        """
        if self.in_flight > own and self.in_flight + count > self.maximum:
            raise self.overloaded()
        if caller and self.callers.share_max < 1:
            self.callers.check(caller, count, own)
            self.callers.add(caller, count)
        self.in_flight += count

    def check(self, caller: str = "") -> None:
        """Raise Overloaded if the limit is reached, or the caller's share of it."""
        if self.in_flight >= self.maximum:
            raise self.overloaded()
        if caller and self.callers.in_flight:
            self.callers.check(caller, 1)

    def overloaded(self) -> Overloaded:
        """Count a request that is shed because of this limit, and return its error."""
        self._shed.inc()
        return Overloaded(f"{self.in_flight} {self.what} are in flight, of {self.maximum}", retry_after_s=1)

    def leave(self, count: int, caller: str = "") -> None:
        """Release so much of the admitted amount."""
        if caller and self.callers.in_flight:
            self.callers.add(caller, -count)
        self.in_flight -= count


class Shares:
    """What each store (or caller) has in flight of one resource, and which part of the limit it may have.

    Each may have the fraction `share_max` of the part that the others leave free. One with nothing else in flight may
    exceed it, as a single request may exceed a limit.
    """

    def __init__(self, owner: str, limit: InFlightLimit, shed: Counter) -> None:
        self.share_max = 1.0
        self.in_flight: dict[str, int] = {}
        self._owner = owner
        self._limit = limit
        self._total = 0
        self._shed = shed.labels(f"{owner}_{limit.what}")

    def check(self, name: str, count: int, own: int = 0) -> None:
        """Raise Overloaded if so much more exceeds the share, for a request that has `own` already."""
        in_flight, limit = self.in_flight.get(name, 0), self._limit
        free = limit.maximum - (self._total - in_flight)
        if count and in_flight > own and in_flight + count > self.share_max * free:
            self._shed.inc()
            most = f"{in_flight} of at most {limit.maximum} {limit.what}"
            share = f"its share ({self._owner}_share_max) allows no more"
            raise Overloaded(f"{self._owner} {name!r}: {most} are in flight, and {share}", retry_after_s=1)

    def add(self, name: str, count: int) -> None:
        """Count so much more as in flight. A negative number releases it, as far as it was counted."""
        before = self.in_flight.get(name, 0)
        if after := max(0, before + count):
            self.in_flight[name] = after
        else:
            self.in_flight.pop(name, None)
        self._total += after - before


class Reservation:
    """One request's part of the limits: a slot, and the bytes of its body, which can grow while it arrives.

    Set `caller` before the first of them is taken. Call `leave` in any case.
    """

    __slots__ = ("_bytes", "_has_slot", "_limits", "caller")

    def __init__(self, limits: "InFlight") -> None:
        self.caller = ""
        self._limits = limits
        self._has_slot = False
        self._bytes = 0

    def take_slot(self) -> None:
        """Count the request as in flight if it is not yet. Raise Overloaded above the limit."""
        if not self._has_slot:
            self._limits.requests.enter(1, self.caller)
            self._has_slot = True

    def grow_body_to(self, body_bytes: int) -> None:
        """Count so many bytes of the body, if more than before. Raise Overloaded above the limit."""
        if body_bytes > self._bytes:
            self._limits.bytes.enter(body_bytes - self._bytes, self.caller, self._bytes)
            self._bytes = body_bytes

    def leave(self, body_bytes: int = 0) -> None:
        """Release the slot and the bytes of the body, except this many. A second call does nothing."""
        if self._has_slot:
            self._limits.requests.leave(1, self.caller)
            self._has_slot = False
        if body_bytes < self._bytes:
            self._limits.bytes.leave(self._bytes - body_bytes, self.caller)
            self._bytes = body_bytes


class InFlight:
    """The limits on the work in flight in one process: one for each resource, with the shares of stores and callers."""

    def __init__(self, registry: CollectorRegistry, limits: LimitSettings) -> None:
        gauge = partial(Gauge, registry=registry, multiprocess_mode="livesum")
        self._in_flight = gauge(
            "tableside_in_flight", "Requests, operations and bytes of request bodies in flight.", ("what",)
        )
        self.in_store = gauge(
            "tableside_store_in_flight", "The same for each store, if there are several.", ("store", "what")
        )
        text = "Requests that were shed, by the limit that they exceeded."
        shed = Counter("tableside_shed", text, ("reason",), registry=registry)
        self.requests = InFlightLimit("requests", shed)
        self.operations = InFlightLimit("operations", shed)
        self.bytes = InFlightLimit("bytes", shed)
        self.all = self.requests, self.operations, self.bytes
        self.change(limits)

    def change(self, limits: LimitSettings) -> None:
        """Change the limits."""
        self.requests.maximum = limits.in_flight_max
        self.operations.maximum = limits.operations_in_flight_max
        self.bytes.maximum = limits.bytes_in_flight_max
        for limit in self.all:
            limit.stores.share_max, limit.callers.share_max = limits.store_share_max, limits.caller_share_max

    def exhausted(self) -> InFlightLimit | None:
        """Return a limit that leaves no room for any other request, None if there is room."""
        if self.requests.in_flight >= self.requests.maximum:
            return self.requests
        return self.operations if self.operations.in_flight >= self.operations.maximum else None

    def sample(self) -> None:
        """Update the gauges."""
        for limit in self.all:
            self._in_flight.labels(limit.what).set(limit.in_flight)


class StoreInFlight:
    """The requests, operations and bytes in flight in one store."""

    def __init__(self, limits: InFlight, store: str) -> None:
        self._store = store
        self._limits = limits.all
        self._gauge = limits.in_store

    def check(self, operations: int = 1, body_bytes: int = 0) -> None:
        """Raise Overloaded if a request with so many operations and bytes exceeds a share."""
        for limit, count in zip(self._limits, (1, operations, body_bytes), strict=True):
            limit.stores.check(self._store, count)

    def add(self, operations: int, body_bytes: int) -> None:
        """Count a request that has been checked as in flight."""
        for limit, count in zip(self._limits, (1, operations, body_bytes), strict=True):
            limit.stores.add(self._store, count)

    def leave(self, operations: int, body_bytes: int) -> None:
        """Stop counting a request."""
        for limit, count in zip(self._limits, (1, operations, body_bytes), strict=True):
            limit.stores.add(self._store, -count)

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
        for limit in self._limits:
            self._gauge.labels(self._store, limit.what).set(limit.stores.in_flight.get(self._store, 0))


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
