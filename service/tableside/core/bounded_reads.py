"""Reads for stores that do not know the size of records before they have read them.

A call first asks for all records and stops at a limit of bytes. For some time afterwards, calls ask for as many records
as probably fit.
"""

import math
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from .errors import TableError
from .read_limit import NOT_READ, READ_BYTES_MAX

Item = TypeVar("Item")
Result = TypeVar("Result")

UPDATE_BYTES_MAX = READ_BYTES_MAX // 4
"""For records that are read to update them. Such a record is copied about 20 times, for example into the request."""

LARGE_RECORDS_S = 1.0
"""After a call has exceeded its byte limit, for how long later calls limit the number of records that they request."""


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
