"""What somebody has seen of a call already, told to the others: that all of it reads, that all of it succeeded.

Each of several policies wants to know the one or the other of every call, and looking at a thousand operations takes a
hundredth of the time that a store in this process needs to get them. Both are lists, only marked, and whoever makes
another of their parts need not care: that is not marked, and is looked at again.
"""

from collections.abc import Sequence

from .operations import Get, Operation, Outcome, Record, Written

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
