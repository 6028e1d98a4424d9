"""Reads for Gets: one statement for many records, whose size the server checks before it sends them."""

from collections.abc import Sequence
from functools import partial

from ...core import INTEGER_MAX, NOT_READ, BoundedReads, Clock, Get, Key, Outcome, ReadBudget, chunks_of
from .deadline_retry import DeadlineRetry, Progress
from .rows import key_arrays, outcomes_by_key, values_bytes
from .session import Connection

READ_KEYS_MAX = 1000
"""How many records one statement reads."""


class RecordReader:
    """Reads records of one table, whose keys have `parts` columns, with the statement `read`."""

    def __init__(self, retry: DeadlineRetry, read: str, parts: int, clock: Clock) -> None:
        self._retry = retry
        self._statement = read
        self._parts = parts
        self._clock = clock
        self._bounded = BoundedReads()

    async def get(self, gets: Sequence[Get], until: float) -> Sequence[Outcome]:
        """Return the outcomes of Gets. Large records are read in several calls."""
        return await self._bounded.read([get.key for get in gets], partial(self._get, until))

    async def _get(self, until: float, keys: Sequence[Key], budget: ReadBudget) -> list[Outcome]:
        read = partial(self._read, budget)
        outcomes: list[Outcome] = []
        for chunk in chunks_of(keys, READ_KEYS_MAX):
            outcomes += await self._retry.run_each(read, chunk, until)
        return outcomes

    async def _read(
        self, budget: ReadBudget, connection: Connection, keys: Sequence[Key], _: Progress
    ) -> list[Outcome]:
        """Read records in one statement. All are NOT_READ if they are together larger than the budget."""
        if budget.exceeded:
            return [NOT_READ] * len(keys)
        bytes_max = int(min(budget.left_bytes, INTEGER_MAX))
        row = await connection.fetchrow(self._statement, *key_arrays(keys, self._parts), self._clock(), bytes_max)
        size_bytes = values_bytes(row, self._parts)
        budget.spend(size_bytes)
        if size_bytes > bytes_max:
            return [NOT_READ] * len(keys)
        return [*map((await outcomes_by_key(row, self._parts)).get, keys)]
