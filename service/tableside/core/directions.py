"""Reads and writes of one batch: classify them, count them, and apply them separately.

The keys of a batch are distinct and its operations independent, so a batch may be divided.
"""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Literal, TypeAlias

from .batch import Batch, Results
from .concurrency import gather_bounded
from .errors import Applied
from .operations import Get, Operation, Outcome, Record, Written

Direction = Literal["read", "write"]

DIRECTIONS: tuple[Direction, Direction] = ("read", "write")

ApplyOperations: TypeAlias = Callable[[Sequence[Operation]], Coroutine[Any, Any, Sequence[Outcome]]]
"""Applies operations and returns one outcome for each, in their order."""


def direction(operation: Operation) -> Direction:
    """Return whether an operation reads or writes."""
    return "read" if isinstance(operation, Get) else "write"


def applied_if_unanswered(operation: Operation) -> Applied:
    """Return whether an operation that was sent but got no response may have been applied."""
    return "no" if isinstance(operation, Get) else "unknown"


async def apply_by_direction(
    operations: Sequence[Operation], read: ApplyOperations, write: ApplyOperations
) -> list[Outcome]:
    """Apply the reads with one function and the writes with another, concurrently. Keep the order of outcomes."""
    positions: dict[Direction, list[int]] = {"read": [], "write": []}
    for position, operation in enumerate(operations):
        positions[direction(operation)].append(position)
    coroutines = [
        apply([operations[position] for position in positions[name]])
        for name, apply in zip(DIRECTIONS, (read, write), strict=True)
    ]
    outcomes: list[Outcome] = [None] * len(operations)
    groups = await gather_bounded(coroutines, len(coroutines))
    for group_positions, group in zip(positions.values(), groups, strict=True):
        for position, outcome in zip(group_positions, group, strict=True):
            outcomes[position] = outcome
    return outcomes


_SUCCESSES = frozenset({Record, Written, type(None)})


def count_reads(operations: Sequence[Operation]) -> int:
    """Return the number of reads."""
    if isinstance(operations, Batch):
        return len(operations) if operations.kind is Get else 0
    return list(map(type, operations)).count(Get)


def all_succeeded(outcomes: Sequence[Outcome]) -> bool:
    """Return whether no outcome is an error."""
    return not outcomes.failed if isinstance(outcomes, Results) else _SUCCESSES.issuperset(map(type, outcomes))
