"""The work in flight in one store, and the share of the in-flight limits that it may take.

Requests to a store that hangs stay in flight until their deadlines. Without a share they would take every slot, and
the service would reject requests to its other stores.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ..core import NO_DEADLINE, Budget, Operation, Outcome, Page, Scan
from ..core.errors import Overloaded
from ..core.operations import size_bytes
from ..core.store import Policy
from .admission import InFlight, InFlightLimit


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
