"""Where credits come from, as those see it who need some; and how many operations so many credits pay."""

import math
from collections.abc import Sequence
from typing import Protocol

import msgspec

from ...core import Delete, Get, Operation, Outcome, Put, Record, Update

ROUNDING = 1e-6
"""Credits come in fractions of binary numbers: so little is missing that it is not."""


class Credits(Protocol):
    """Credits of one limit. Who waits for some does so in a fair line, which nobody overtakes."""

    def try_take(self, cost: float) -> bool:
        """Take so many credits if they are there and nobody waits."""
        ...

    def take_some(self, costs: Sequence[float]) -> int:
        """Take what pays the first of these that there are credits for, if nobody waits, and return how many."""
        ...

    async def take(self, costs: Sequence[float], until: float) -> int:
        """Wait for what pays the first of these, and some more at once, and return how many; 0 if none by `until`.

        `until` is a time of the running loop's clock. Who is cancelled while waiting has taken nothing.
        """
        ...

    def refund(self, cost: float) -> None:
        """Put back credits that were taken and not used."""
        ...

    def charge(self, cost: float) -> None:
        """Take credits that may not be there yet; who comes next waits for them, but never for longer than `DEBT_S`."""
        ...

    def wait_s(self, cost: float) -> float:
        """Return in how many seconds, at the earliest, such an operation can pass after all who wait."""
        ...


DEBT_S = 10.0
"""How much can be owed: what comes in this time. So one answer does not close a table for longer."""


def affordable(costs: Sequence[float], credit: float, burst: float) -> tuple[int, float]:
    """Return how many of the first of these so many credits pay, and what those cost.

    One that costs more than can ever be there passes, alone, when the bucket is full.
    """
    total = 0.0
    for count, cost in enumerate(costs):
        if total + cost > credit + ROUNDING:
            return (count, total) if count or burst > credit + ROUNDING else (1, cost)
        total += cost
    return len(costs), total


KIB = 1024


class Cost(msgspec.Struct, frozen=True):
    """Credits for an operation of each kind, and for each KiB that is begun of what it sends, or of what a get finds.

    0 is free.
    """

    get: float = 1.0
    put: float = 1.0
    update: float = 1.0
    delete: float = 1.0
    kib: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what would earn credits, or could never be paid."""
        if not all(0 <= cost < math.inf for cost in (self.get, self.put, self.update, self.delete, self.kib)):
            raise ValueError("a cost is at least 0, and finite")

    @property
    def uniform(self) -> bool:
        """Whether every operation costs one credit, so that they need not be looked at."""
        return self == Cost()

    def of(self, operation: Operation) -> float:
        """Return what an operation costs before it is sent."""
        match operation:
            case Get():
                return self.get
            case Put():
                return self.put + self._sent(len(operation.value))
            case Update():
                return self.update + (self._sent(_size_bytes(operation)) if self.kib else 0.0)
            case Delete():
                return self.delete

    def found_cost(self, outcomes: Sequence[Outcome]) -> float:
        """Return what gets cost beside that, for what they have found."""
        return sum(self._sent(len(outcome.value)) for outcome in outcomes if isinstance(outcome, Record))

    def _sent(self, size_bytes: int) -> float:
        return self.kib * -(-size_bytes // KIB)


def _size_bytes(update: Update) -> int:
    return len(msgspec.json.encode(update.changes)) + len(update.default or b"")
