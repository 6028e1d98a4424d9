"""The limit on the values that one call of a store returns, so that memory does not depend on the size of records."""

from collections.abc import Iterable

from msgspec.structs import replace

from .errors import TooLarge
from .operations import Operation, Outcome, Put, Record, Update, Written

READ_BYTES_MAX = 2**24
"""After so many bytes of values, a call of a store reads no more records. At least one is read."""


class NotRead(TooLarge):
    """An operation that a store has not attempted, because it had already returned `READ_BYTES_MAX`.

    `Table` sends the operation again while the response has room for another value.
    """


NOT_READ = NotRead("the response exceeds its size limit: request this record again", retriable=True)


def value_bytes(outcomes: Iterable[object]) -> int:
    """Return the size of the values of outcomes."""
    size_bytes = 0
    for outcome in outcomes:
        if isinstance(outcome, Record):
            size_bytes += len(outcome.value)
        elif isinstance(outcome, Written):
            if outcome.value is not None:
                size_bytes += len(outcome.value)
            if outcome.partitions:
                size_bytes += value_bytes([part.outcome for part in outcome.partitions])
    return size_bytes


def without_value(operation: Operation) -> Operation:
    """Return the operation, a write without the request for its value."""
    if isinstance(operation, Put | Update) and operation.returning:
        return replace(operation, returning=False)
    return operation


def not_read(outcomes: Iterable[Outcome]) -> list[int]:
    """Return the positions of operations that were not attempted."""
    return [position for position, outcome in enumerate(outcomes) if outcome is NOT_READ]
