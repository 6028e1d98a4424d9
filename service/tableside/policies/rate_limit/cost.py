"""What an operation costs, in credits. Knows nothing of where credits come from."""

import math
from collections.abc import Sequence

import msgspec

from ...core import Delete, Get, Operation, Outcome, Put, Record, Update

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
    def alike(self) -> bool:
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

    def found(self, outcomes: Sequence[Outcome]) -> float:
        """Return what gets cost beside that, for what they have found."""
        return sum(self._sent(len(outcome.value)) for outcome in outcomes if isinstance(outcome, Record))

    def _sent(self, size_bytes: int) -> float:
        return self.kib * -(-size_bytes // KIB)


def _size_bytes(update: Update) -> int:
    return len(msgspec.json.encode(update.changes)) + len(update.default or b"")
