"""The limit on the values that one call of a store returns, so that memory does not depend on the size of records.

A store that does not know the size of records before it has read them uses `BoundedReads`. A call first asks for all
records and stops at a limit of bytes. For some time afterwards, calls ask for as many records as probably fit.
"""

import math
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from msgspec.structs import replace

from .batch import Results
from .errors import TableError, TooLarge
from .operations import Operation, Outcome, Put, Record, Update, Written

Item = TypeVar("Item")
Result = TypeVar("Result")

READ_BYTES_MAX = 2**24
"""After so many bytes of values, a call of a store reads no more records. At least one is read."""

UPDATE_BYTES_MAX = READ_BYTES_MAX // 4
"""For records that are read to update them. Such a record is copied about 20 times, for example into the request."""

LARGE_RECORDS_S = 1.0
"""After a call has exceeded its byte limit, for how long later calls limit the number of records that they request."""


class NotRead(TooLarge):
    """An operation that a store has not attempted, because it had already returned `READ_BYTES_MAX`.

    `Table` sends the operation again while the response has room for another value.
    """


NOT_READ = NotRead("the response exceeds its size limit: request this record again", retriable=True)


class ReadBudget:
    """Counts the bytes that one call has received."""

    def __init__(self, bytes_max: float) -> None:
        self.spent_bytes: float = 0
        self._bytes_max = bytes_max

    def spend(self, size_bytes: float) -> None:
        """Count received bytes."""
        self.spent_bytes += size_bytes

    @property
    def left_bytes(self) -> float:
        """How many more bytes the call may receive."""
        return max(0, self._bytes_max - self.spent_bytes)

    @property
    def exceeded(self) -> bool:
        """Whether the call has received more than it may."""
        return self.spent_bytes > self._bytes_max


class BoundedReads:
    """Chooses how many records each call for one table reads, so that their size is probably at most `bytes_max`.

    If the replies to one call are larger than twice the limit, they are discarded.
    """

    def __init__(self, bytes_max: int = READ_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._count_max = 1
        self._limited_until = -math.inf

    async def read(
        self,
        items: Sequence[Item],
        read: Callable[[Sequence[Item], ReadBudget], Awaitable[Sequence[Result | TableError]]],
    ) -> Sequence[Result | TableError]:
        """Read some of the items. The others end as NOT_READ. The first item is always read.

        `read` returns NOT_READ for items that it has not read when it exceeds the budget.
        """
        if len(items) <= 1:
            return await read(items, ReadBudget(math.inf))
        sent = items
        if time.monotonic() < self._limited_until:
            sent = items[: self._count_max]
        limited = len(sent) < len(items)
        budget = ReadBudget(2 * self._bytes_max if len(sent) > 1 else math.inf)
        outcomes = await read(sent, budget)
        if budget.exceeded and outcomes[0] is NOT_READ:
            budget = ReadBudget(math.inf)
            outcomes = [*await read(items[:1], budget), *outcomes[1:]]
            self._limit(1, budget.spent_bytes)
        elif limited or budget.exceeded:
            self._limit(len(outcomes) - outcomes.count(NOT_READ), budget.spent_bytes)
        return [*outcomes, *[NOT_READ] * (len(items) - len(outcomes))] if limited else outcomes

    def _limit(self, count: int, size_bytes: float) -> None:
        """Let the next calls read as many records as fit if these have the average size, at most twice as many."""
        fitting = int(self._bytes_max * count / max(1, size_bytes))
        self._count_max = max(1, min(fitting, 2 * count))
        self._limited_until = time.monotonic() + LARGE_RECORDS_S


def value_bytes(outcomes: Iterable[object]) -> int:
    """Return the size of the values of outcomes."""
    if isinstance(outcomes, Results):
        return outcomes.value_bytes
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
