"""The direction of a call, reads or writes. `Table` divides batches, so that all operations of a call have the same."""

from collections.abc import Sequence
from typing import Literal

from .batch import Batch, Results
from .errors import Applied
from .operations import Get, Operation, Outcome, Record, Written

Direction = Literal["read", "write"]


def direction(operations: Sequence[Operation]) -> Direction:
    """Return whether a call reads or writes. It has at least one operation."""
    kind = operations.kind if isinstance(operations, Batch) else type(operations[0])
    return "read" if kind is Get else "write"


def applied_if_unanswered(operations: Sequence[Operation]) -> Applied:
    """Return whether the operations of a call that was sent but got no response may have been applied."""
    return "no" if direction(operations) == "read" else "unknown"


def count_reads(operations: Sequence[Operation]) -> int:
    """Return the number of reads."""
    if isinstance(operations, Batch):
        return len(operations) if operations.kind is Get else 0
    return list(map(type, operations)).count(Get)


def at_positions(operations: Sequence[Operation], positions: Sequence[int]) -> Sequence[Operation]:
    """Return the operations at some positions, in columns if all operations are."""
    if isinstance(operations, Batch):
        return operations.at(positions)
    return [operations[position] for position in positions]


_SUCCESSES = frozenset({Record, Written, type(None)})


def all_succeeded(outcomes: Sequence[Outcome]) -> bool:
    """Return whether no outcome is an error."""
    return not outcomes.failed if isinstance(outcomes, Results) else _SUCCESSES.issuperset(map(type, outcomes))
