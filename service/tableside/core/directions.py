"""Reads and writes of one call, told apart: what policies need that treat the two differently.

Keys are distinct within a call and its operations independent, so a call may be divided. Knows nothing of stores.
"""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Literal, TypeAlias

from .concurrency import together
from .errors import Applied
from .operations import Get, Operation, Outcome, Record, Written

Direction = Literal["read", "write"]

DIRECTIONS: tuple[Direction, Direction] = ("read", "write")

Way: TypeAlias = Callable[[Sequence[Operation]], Coroutine[Any, Any, list[Outcome]]]
"""One way to do operations: one outcome for each, in their order."""


def direction(operation: Operation) -> Direction:
    """Return which way an operation goes."""
    return "read" if isinstance(operation, Get) else "write"


def applied_if_unanswered(operation: Operation) -> Applied:
    """Return whether an operation that was sent and not answered may have changed anything."""
    return "no" if isinstance(operation, Get) else "unknown"


async def apart(operations: Sequence[Operation], read: Way, write: Way) -> list[Outcome]:
    """Do the reads one way and the writes another, side by side, and return all outcomes in the given order."""
    ways: dict[Direction, list[int]] = {"read": [], "write": []}
    for position, operation in enumerate(operations):
        ways[direction(operation)].append(position)
    works = [
        way([operations[position] for position in ways[name]])
        for name, way in zip(DIRECTIONS, (read, write), strict=True)
    ]
    outcomes: list[Outcome] = [None] * len(operations)
    for positions, answers in zip(ways.values(), await together(works, len(works)), strict=True):
        for position, answer in zip(positions, answers, strict=True):
            outcomes[position] = answer
    return outcomes


_SUCCESSES = frozenset({Record, Written, type(None)})


class Reads(list[Operation]):
    """Operations that are reads, all of them."""

    __slots__ = ()


class Succeeded(list[Outcome]):
    """Outcomes of which none is an error. They are not changed: who wants others makes another list."""

    __slots__ = ()


def reads(operations: Sequence[Operation]) -> int:
    """Count the reads."""
    if type(operations) is Reads:
        return len(operations)
    return list(map(type, operations)).count(Get)


def all_succeeded(outcomes: Sequence[Outcome]) -> bool:
    """Whether none of them is an error."""
    return type(outcomes) is Succeeded or _SUCCESSES.issuperset(map(type, outcomes))
