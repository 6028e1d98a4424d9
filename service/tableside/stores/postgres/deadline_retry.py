"""Runs work on a connection within a deadline, and retries it if nothing was applied.

Work takes a sequence of items and returns one result for each. If the server rejects some rows, the items are split in
half, so that only the rejected ones fail.
"""

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias, TypeVar

import asyncpg

from ...core import Applied, Contended, DeadlineExceeded, TableError, exponential_backoff_s
from .errors import (
    DRIVER_ERRORS,
    is_connection_error,
    is_input_error,
    is_read_only_error,
    is_rolled_back,
    is_row_error,
    translate_error,
)
from .pool import Pool
from .session import Connection

Item = TypeVar("Item")
Result = TypeVar("Result")

ATTEMPTS_MAX = 64
"""How often a transaction is tried that the server rolls back each time."""

PAUSE_S = 0.002
PAUSE_MAX_S = 0.25


class Progress:
    """The progress of one attempt: whether a write was sent whose response is unknown, and the rows it contains."""

    def __init__(self) -> None:
        self.applied: Applied = "no"
        self.rows: Sequence[Any] = ()


Work: TypeAlias = Callable[[Connection, Sequence[Item], Progress], Awaitable[Sequence[Result]]]
ExplainError: TypeAlias = Callable[[asyncpg.PostgresError, Sequence[Any], float], Awaitable[TableError]]


class _RowsRejected(Exception):
    """The server rejected some of the rows that the work sent."""

    def __init__(self, error: asyncpg.PostgresError, progress: Progress) -> None:
        super().__init__()
        self.error = error
        self.rows = progress.rows


class DeadlineRetry:
    """Runs work on the connections of a pool for one table."""

    def __init__(
        self, pool: Pool, table: str, explain: ExplainError, *, jitter: Callable[[], float] = random.random
    ) -> None:
        self._pool = pool
        self._table = table
        self._explain = explain
        self._jitter = jitter

    async def run_each(
        self, work: Work[Item, Result], items: Sequence[Item], until: float
    ) -> Sequence[Result | TableError]:
        """Return a result or an error for each item. Items that the server rejects do not affect the others."""
        try:
            return await self.run_together(work, items, until)
        except TableError as error:
            return [error] * len(items)
        except _RowsRejected as rejected:
            if len(items) == 1:
                return [await self._explain(rejected.error, rejected.rows, until)]
        middle = len(items) // 2
        return [*await self.run_each(work, items[:middle], until), *await self.run_each(work, items[middle:], until)]

    async def run_together(self, work: Work[Item, Result], items: Sequence[Item], until: float) -> Sequence[Result]:
        """Run the work for all items together. Raise a TableError if it fails."""
        repeated = fresh = False
        for attempt in range(ATTEMPTS_MAX):
            progress = Progress()
            try:
                async with asyncio.timeout_at(until if until < math.inf else None):
                    async with self._pool.connection(fresh=fresh) as connection:
                        return await work(connection, items, progress)
            except DRIVER_ERRORS as error:
                if isinstance(error, TimeoutError) and time.monotonic() >= until:
                    raise self._deadline_exceeded(progress.applied) from None
                rejected = is_row_error(error) or (progress.rows and is_input_error(error))
                if isinstance(error, asyncpg.PostgresError) and rejected:
                    raise _RowsRejected(error, progress) from error
                lost = is_connection_error(error) and progress.applied == "no"
                if not repeated and (lost or is_read_only_error(error)):
                    repeated, fresh = True, lost
                    continue
                if not is_rolled_back(error):
                    raise translate_error(error, self._table, applied=progress.applied) from error
                fresh = False
            await self.pause(attempt, until)
        raise Contended(f"table {self._table!r}: PostgreSQL rolled back the transaction {ATTEMPTS_MAX} times")

    async def pause(self, attempt: int, until: float) -> None:
        """Wait with exponential backoff. Raise DeadlineExceeded if the deadline comes first."""
        pause_s = exponential_backoff_s(attempt, PAUSE_S, PAUSE_MAX_S, self._jitter)
        if time.monotonic() + pause_s >= until:
            raise self._deadline_exceeded("no")
        await asyncio.sleep(pause_s)

    def _deadline_exceeded(self, applied: Applied) -> DeadlineExceeded:
        return DeadlineExceeded(f"table {self._table!r}: the deadline was exceeded", applied=applied)
