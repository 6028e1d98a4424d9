"""Work on a connection, within a deadline: tried again where nothing was applied, halved where some rows are refused.

Knows nothing of what the work is: it takes items and answers one thing for each.
"""

import asyncio
import math
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias, TypeVar

import asyncpg

from ...core import Applied, Contended, DeadlineExceeded, TableError, exponential_backoff_s
from .errors import DRIVER_ERRORS, connection_lost, of_one_row, rolled_back, translated
from .pool import Connection, Pool

Item = TypeVar("Item")
Answer = TypeVar("Answer")

ATTEMPTS_MAX = 64
"""How often a transaction that the server rolled back is tried."""

PAUSE_S = 0.002
PAUSE_MAX_S = 0.25


class Sent:
    """How far work has come: whether a write was sent whose answer is not known, and the rows it has."""

    def __init__(self) -> None:
        self.applied: Applied = "no"
        self.rows: Sequence[Any] = ()


Work: TypeAlias = Callable[[Connection, Sequence[Item], Sent], Awaitable[Sequence[Answer]]]
Explain: TypeAlias = Callable[[asyncpg.PostgresError, Sequence[Any], float], Awaitable[TableError]]


class _Refused(Exception):
    """The server refuses some row of the work's."""

    def __init__(self, error: asyncpg.PostgresError, sent: Sent) -> None:
        super().__init__()
        self.error = error
        self.rows = sent.rows


class Attempts:
    """Does work for one table."""

    def __init__(
        self, pool: Pool, table: str, explain: Explain, *, jitter: Callable[[], float] = random.random
    ) -> None:
        self._pool = pool
        self._table = table
        self._explain = explain
        self._jitter = jitter

    async def each(
        self, work: Work[Item, Answer], items: Sequence[Item], until: float
    ) -> Sequence[Answer | TableError]:
        """Return an answer for each item; where the server refuses some, the others are done without them."""
        try:
            return await self.whole(work, items, until)
        except TableError as error:
            return [error] * len(items)
        except _Refused as refused:
            if len(items) == 1:
                return [await self._explain(refused.error, refused.rows, until)]
        middle = len(items) // 2
        return [*await self.each(work, items[:middle], until), *await self.each(work, items[middle:], until)]

    async def whole(self, work: Work[Item, Answer], items: Sequence[Item], until: float) -> Sequence[Answer]:
        """Do all the work in one go. Raise a TableError if that fails."""
        fresh = False
        for attempt in range(ATTEMPTS_MAX):
            sent = Sent()
            try:
                async with asyncio.timeout_at(until if until < math.inf else None):
                    async with self._pool.connection(fresh=fresh) as connection:
                        return await work(connection, items, sent)
            except DRIVER_ERRORS as error:
                if isinstance(error, TimeoutError) and asyncio.get_running_loop().time() >= until:
                    raise self._too_late(sent.applied) from None
                if isinstance(error, asyncpg.PostgresError) and of_one_row(error):
                    raise _Refused(error, sent) from error
                again = connection_lost(error) and sent.applied == "no" and not fresh
                if not again and not rolled_back(error):
                    raise translated(error, self._table, applied=sent.applied) from error
                fresh = again
            if not fresh:
                await self.pause(attempt, until)
        raise Contended(f"table {self._table!r}: PostgreSQL rolled it back each of {ATTEMPTS_MAX} times")

    async def pause(self, attempt: int, until: float) -> None:
        """Wait a little, longer the more often. Raise DeadlineExceeded if that is too long."""
        pause_s = exponential_backoff_s(attempt, PAUSE_S, PAUSE_MAX_S, self._jitter)
        if asyncio.get_running_loop().time() + pause_s >= until:
            raise self._too_late("no")
        await asyncio.sleep(pause_s)

    def _too_late(self, applied: Applied) -> DeadlineExceeded:
        return DeadlineExceeded(f"table {self._table!r}: the deadline was over", applied=applied)
