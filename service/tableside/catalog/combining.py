"""Combines operations of a batch that have the same key, and gives each its own outcome.

Two puts, for example, become one: the last. Operations that cannot be combined are sent in successive rounds.
"""

import math
from collections import deque
from collections.abc import Sequence

import msgspec

from ..core import (
    Changes,
    Get,
    InvalidOperation,
    Key,
    Operation,
    Outcome,
    PartitionOutcome,
    Put,
    TableError,
    Update,
    Written,
    touched_members,
)
from ..core.update_folding import fold
from ..core.updates import apply

UPDATED_BYTES_MAX = 2**16
"""Maximum size of a put's value to which a later update is applied here. Parsing it blocks the event loop."""

COMBINED_OPERATIONS_MAX = 256
"""Maximum number of operations on one key that are combined into one: folding n updates takes time of order n * n."""


class Step(msgspec.Struct, frozen=True):
    """One operation to send, and the positions of the caller's operations that it combines."""

    operation: Operation
    positions: tuple[int, ...]


def steps_by_key(
    operations: Sequence[Operation], key_names: frozenset[str], *, folding: bool
) -> dict[Key, deque[Step]]:
    """Combine operations that follow each other on a key, and return for each key the steps to send in turn.

    `key_names` are the names of the key's fields. `folding` tells that the store accepts any value.
    """
    waiting: dict[Key, deque[Step]] = {}
    for position, operation in enumerate(operations):
        steps = waiting.setdefault(operation.key, deque())
        combined = None
        if steps and len(steps[-1].positions) < COMBINED_OPERATIONS_MAX:
            combined = _combined(steps[-1].operation, operation, key_names, folding=folding)
        if combined is None:
            steps.append(Step(operation, (position,)))
        else:
            steps.append(Step(combined, (*steps.pop().positions, position)))
    return waiting


def _combined(earlier: Operation, later: Operation, key_names: frozenset[str], *, folding: bool) -> Operation | None:
    """Return one operation with the effect of both, or None if the outcome of each could not be told apart then.

    Not combined are:
    - updates of a member named like a key field: the store may reject the value that such an update leaves, and a later
      operation could hide that;
    - operations on different or several partitions: one of the two may fail in one partition only;
    - writes to a store that rejects some values (`folding` is False): each write needs its own error.
    """
    if earlier.partitions != later.partitions or not (folding or isinstance(later, Get)):
        return None
    match earlier, later:
        case Get(), Get():
            return min(earlier, later, key=_age_max_s)
        case Put(), Put() if _plain(earlier) and _plain(later):
            return later
        case Put(), Update() if _plain(earlier) and _plain(later):
            return None if _touches(key_names, later.changes) else _updated(earlier, later)
        case Update(), Update() if _plain(earlier) and _plain(later):
            if _touches(key_names, earlier.changes + later.changes):
                return None
            return msgspec.structs.replace(earlier, changes=fold(earlier.changes, later.changes))
    return None


def _touches(names: frozenset[str], changes: Changes) -> bool:
    return bool(names) and not names.isdisjoint(touched_members(changes))


def _updated(put: Put, update: Update) -> Put | None:
    """Return the put with the update applied to its value; None if the update is invalid or the value is large."""
    if len(put.value) > UPDATED_BYTES_MAX:
        return None
    try:
        return msgspec.structs.replace(put, value=apply(put.value, update.changes))
    except InvalidOperation:
        return None


def _age_max_s(get: Get) -> float:

    return math.inf if get.max_age_s is None else get.max_age_s


def _plain(write: Put | Update) -> bool:
    """Return whether a write is unconditional, in at most one partition, and without token, TTL or returned value."""
    conditional = write.if_match is not None or (isinstance(write, Put) and write.if_absent)
    several = write.partitions is not None and len(write.partitions) > 1
    return not (conditional or several or write.token or write.returning or write.ttl_s is not None)


def set_outcomes(
    steps: deque[Step], step: Step, answer: Outcome, operations: Sequence[Operation], outcomes: list[Outcome]
) -> None:
    """Set the outcomes of a step's operations from the store's `answer`; `steps` are the later ones on the same key.

    After an error that is transient or leaves the write in doubt, the later steps are not attempted.
    """
    if isinstance(answer, TableError):
        if (error := _unresolved(answer)) is not None:
            for held_back in steps:
                _set_all(held_back.positions, error.not_attempted(), outcomes)
            steps.clear()
        elif len(step.positions) > 1 and not isinstance(step.operation, Get):
            # The store rejected one of the combined operations, and the others must succeed: send each by itself.
            steps.extendleft(Step(operations[position], (position,)) for position in reversed(step.positions))
            return
    if isinstance(answer, Written) and len(step.positions) > 1:
        _set_superseded(step.positions, answer, outcomes)
    else:
        _set_all(step.positions, answer, outcomes)


def _unresolved(error: TableError) -> TableError | None:
    """Return the error if it is retriable or may have been applied; of several partitions, the first such error."""
    parts = [part.outcome for part in error.partitions or () if isinstance(part.outcome, TableError)] or [error]
    return next((part for part in parts if part.retriable or part.applied == "unknown"), None)


def _set_all(positions: Sequence[int], answer: Outcome, outcomes: list[Outcome]) -> None:
    for position in positions:
        outcomes[position] = answer


def _set_superseded(positions: Sequence[int], answer: Written, outcomes: list[Outcome]) -> None:
    """Give the last operation the etag of the record, and the others etags that no record has.

    Their versions were replaced at once.
    """
    for position in positions:
        etag = answer.etag if position == positions[-1] or answer.etag is None else f"{answer.etag}.{position}"
        outcomes[position] = _with(answer, etag, created=answer.created and position == positions[0])


def _with(answer: Written, etag: str | None, *, created: bool) -> Written:
    """Return the outcome with another etag, also in the partition that it may name."""
    own = msgspec.structs.replace(answer, etag=etag, created=created, partitions=None)
    if answer.partitions is None:
        return own
    placed = tuple(PartitionOutcome(part.partition, own) for part in answer.partitions)
    return msgspec.structs.replace(own, partitions=placed)
