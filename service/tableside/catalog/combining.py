"""Combines operations of a batch that have the same key, and gives each its own outcome.

Two puts, for example, become one: the last. Two updates become one with the changes of both. Operations that cannot be
combined follow in successive rounds.
"""

import math
from collections import Counter, deque
from collections.abc import Sequence

import msgspec
import pyarrow as pa

from ..core import Get, Key, Operation, Outcome, PartitionOutcome, Put, TableError, Update, Written
from ..core.batch import Batch, has_only
from ..core.budget import NO_DEADLINE, NOT_READ, Budget
from ..core.concurrency import Yielder
from ..core.operations import size_bytes
from ..core.updates import joined, touched_members

COMBINED_OPERATIONS_MAX = 256
"""Maximum number of operations on one key that are combined into one: if the store rejects it, each is sent alone."""

COMBINED_BYTES_MAX = 2**15
"""Maximum size of the values and updates that are combined into one operation. Combining blocks the event loop."""


class Step(msgspec.Struct, frozen=True):
    """One operation to send, and the positions of the caller's operations that it combines."""

    operation: Operation
    positions: tuple[int, ...]


def keys_differ(operations: Sequence[Operation]) -> bool:
    """Return whether no two operations have the same key."""
    keys = operations.columns["key"] if isinstance(operations, Batch) else [operation.key for operation in operations]
    return len(keys.unique() if isinstance(keys, pa.Array) else set(keys)) == len(keys)


async def steps_by_key(
    operations: Sequence[Operation], key_names: frozenset[str], *, folding: bool, budget: Budget = NO_DEADLINE
) -> dict[Key, deque[Step]]:
    """Combine successive operations on a key, and return the steps to send in turn for each key that occurs repeatedly.

    `key_names` are the names of the key's fields. With `folding`, the store accepts any value. Raise
    DeadlineExceeded after the deadline.
    """
    counts = Counter(operation.key for operation in operations)
    runs: dict[Key, list[_Run]] = {}
    yielder = Yielder()
    for position, operation in enumerate(operations):
        if counts[operation.key] == 1:
            continue
        of_key = runs.setdefault(operation.key, [])
        if not (of_key and of_key[-1].add(position, operation, key_names, folding=folding)):
            of_key.append(_Run(position, operation))
        if yielder.due:
            await _yield_within(yielder, budget)
    waiting: dict[Key, deque[Step]] = {}
    for key, of_key in runs.items():
        steps = waiting[key] = deque()
        for run in of_key:
            combined = _combined([operations[position] for position in run.positions])
            steps.append(Step(combined, tuple(run.positions)))
            if yielder.due:
                await _yield_within(yielder, budget)
    return waiting


async def _yield_within(yielder: Yielder, budget: Budget) -> None:
    await yielder.maybe_yield()
    if budget.is_over():
        raise budget.exceeded()


class _Run:
    """Operations of one kind on one key that follow each other and become one step.

    Not combined are:
    - updates of a member named like a key field: the store may reject the value that such an update leaves, and a later
      operation could hide that;
    - operations on different or several partitions: one of the two may fail in one partition only;
    - writes to a store that rejects some values: each write needs its own error.
    """

    def __init__(self, position: int, first: Operation) -> None:
        self._first = first
        self.positions = [position]
        self._bytes = size_bytes(first)

    def add(self, position: int, operation: Operation, key_names: frozenset[str], *, folding: bool) -> bool:
        """Add the next operation on the key. Return False, with nothing changed, if it cannot be combined."""
        first = self._first
        if type(operation) is not type(first) or first.partitions != operation.partitions:
            return False
        if len(self.positions) >= COMBINED_OPERATIONS_MAX:
            return False
        if isinstance(operation, Put | Update) and isinstance(first, Put | Update):
            if not (folding and _plain(first) and _plain(operation)):
                return False
        elif not isinstance(operation, Get):
            return False
        if isinstance(operation, Update) and isinstance(first, Update):  # a put that another put replaces costs nothing
            self._bytes += size_bytes(operation)
            changes = (first.changes, operation.changes) if key_names else ()
            touches = any(not key_names.isdisjoint(touched_members(each)) for each in changes)
            if touches or self._bytes > COMBINED_BYTES_MAX:
                return False
        self.positions.append(position)
        return True


def _combined(operations: Sequence[Operation]) -> Operation:
    """Return one operation with the effect of several of one kind."""
    first = operations[0]
    if isinstance(first, Get):
        gets = [get for get in operations if isinstance(get, Get)]
        return min(gets, key=lambda get: math.inf if get.max_age_s is None else get.max_age_s)
    if len(operations) == 1 or not isinstance(first, Update):
        return operations[-1]
    each = [update.changes for update in operations if isinstance(update, Update)]
    return msgspec.structs.replace(first, changes=joined(each))


_COMBINABLE = ("key", "value", "changes", "default", "partitions")
"""The members that a combined write may have. A write in which another one differs from its default is sent alone."""


def _plain(write: Put | Update) -> bool:
    """Return whether a write is in at most one partition, and has only members that may be combined."""
    return (write.partitions is None or len(write.partitions) < 2) and has_only(write, *_COMBINABLE)


def set_outcomes(
    steps: deque[Step], step: Step, answer: Outcome, operations: Sequence[Operation], outcomes: list[Outcome]
) -> None:
    """Set the outcomes of a step's operations from the store's `answer`. `steps` are the later ones on the same key.

    After an error that is transient or leaves the write in doubt, the later steps are not attempted.
    """
    if isinstance(answer, TableError):
        if (error := _unresolved(answer)) is not None:
            not_attempted = error.not_attempted()
            for position in [position for later in steps for position in later.positions]:
                outcomes[position] = not_attempted
            steps.clear()
        elif len(step.positions) > 1 and not isinstance(step.operation, Get):
            # The store rejected one of the combined operations, and the others must succeed: send each alone.
            steps.extendleft(Step(operations[position], (position,)) for position in reversed(step.positions))
            return
    for position in step.positions:
        outcomes[position] = answer
    if isinstance(answer, Written) and len(step.positions) > 1:
        _set_superseded(step.positions, answer, outcomes)


def _unresolved(error: TableError) -> TableError | None:
    """Return the error if it is retriable or may have been applied. For partitions, return the first such error.

    A get whose value does not fit into the response does not count: the store is able to apply later operations.
    """
    if error is NOT_READ:
        return None
    parts = [part.outcome for part in error.partitions or () if isinstance(part.outcome, TableError)] or [error]
    return next((part for part in parts if part.retriable or part.applied == "unknown"), None)


def _set_superseded(positions: Sequence[int], answer: Written, outcomes: list[Outcome]) -> None:
    """Give the last operation the etag of the record, and the others etags that no record has.

    Their versions were replaced in one step. The partition that the outcome may name has the same etag.
    """
    for position in positions:
        etag = answer.etag if position == positions[-1] or answer.etag is None else f"{answer.etag}.{position}"
        created = answer.created and position == positions[0]
        own = msgspec.structs.replace(answer, etag=etag, created=created, partitions=None)
        if answer.partitions is not None:
            placed = tuple(PartitionOutcome(part.partition, own) for part in answer.partitions)
            own = msgspec.structs.replace(own, partitions=placed)
        outcomes[position] = own
