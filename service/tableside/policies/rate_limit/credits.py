"""The interface of a source of credits, and the cost of operations in credits."""

import math
from collections.abc import Sequence
from typing import Protocol

import msgspec

from ...core import Delete, Get, Operation, Outcome, Put, Record, Update
from ...core.operations import size_bytes

ROUNDING = 1e-6
"""Tolerance for the rounding of fractional credits: a smaller deficit counts as none."""


class Credits(Protocol):
    """The credits of one limit. Calls wait for them in a fair queue, and none overtakes it."""

    def try_take(self, cost: float) -> bool:
        """Take the credits if they are available and no call waits. Return whether they were taken."""
        ...

    def take_some(self, costs: Sequence[float]) -> int:
        """Pay as many of the first of these costs as there are credits for, if no call waits. Return their number."""
        ...

    async def take(self, costs: Sequence[float], until: float) -> int:
        """Wait for credits to pay the first of these costs, and possibly more. Return their number, or 0.

        It is 0 if no credits arrive by `until`, a time of `time.monotonic`. A cancelled call has taken nothing.
        """
        ...

    def refund(self, cost: float) -> None:
        """Return credits that were taken and not used."""
        ...

    def charge(self, cost: float) -> None:
        """Take credits that may not be available yet. Later calls wait for them, but never longer than `DEBT_S`."""
        ...

    def wait_s(self, cost: float) -> float:
        """Return the seconds until, at the earliest, an operation of this cost can pass after all waiting calls."""
        ...


DEBT_S = 10.0
"""Maximum debt, as the time until its credits arrive: one large record blocks a table no longer than this."""


def affordable(costs: Sequence[float], credit: float, burst: float) -> tuple[int, float]:
    """Return how many of the first of these costs the credit pays, and their sum.

    A cost above the bucket's capacity (`burst`) is paid alone, when the bucket is full.
    """
    total = 0.0
    for count, cost in enumerate(costs):
        if total + cost > credit + ROUNDING:
            return (count, total) if count or burst > credit + ROUNDING else (1, cost)
        total += cost
    return len(costs), total


KIB = 1024


class Cost(msgspec.Struct, frozen=True):
    """Credits for an operation of each kind, and for each started KiB that a write sends or a get finds.

    0 means free.
    """

    get: float = 1.0
    put: float = 1.0
    update: float = 1.0
    delete: float = 1.0
    kib: float = 0.0

    def __post_init__(self) -> None:
        """Reject costs that are negative or infinite."""
        if not all(0 <= cost < math.inf for cost in (self.get, self.put, self.update, self.delete, self.kib)):
            raise ValueError("a cost must be at least 0, and finite")

    @property
    def uniform(self) -> bool:
        """Return whether every operation costs one credit, so that their costs need not be computed."""
        return self == Cost()

    def of(self, operation: Operation) -> float:
        """Return the cost of an operation that is charged before it is sent."""
        match operation:
            case Get():
                return self.get
            case Put():
                return self.put + self._size_cost(len(operation.value))
            case Update():
                return self.update + (self._size_cost(size_bytes(operation)) if self.kib else 0.0)
            case Delete():
                return self.delete

    def found_cost(self, outcomes: Sequence[Outcome]) -> float:
        """Return the additional cost of gets for the records that they found."""
        return sum(self._size_cost(len(outcome.value)) for outcome in outcomes if isinstance(outcome, Record))

    def _size_cost(self, size_bytes: int) -> float:
        return self.kib * -(-size_bytes // KIB)
