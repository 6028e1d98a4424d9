"""Puts into a generation that loads, most of whose records are new: a plain insert, in columns.

Only the service writes such a table, so no trigger or policy of it leaves a row out, and one transaction gives all its
rows the same etag. If a record exists, because a task was repeated, the statement fails, and `put` replaces records.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from ...core import Batch, Clock, Outcome, Put, Results, TableError, TableSpec, Written, expiry_ms, joined_outcomes
from .connections import Connection, DeadlineRetry, Progress, RowsRejected
from .statements import TableSql
from .writes import STATEMENT_BYTES_MAX, STATEMENT_WRITES_MAX

PutAll = Callable[[Sequence[Any], float], Awaitable[Sequence[Outcome]]]


class RecordLoader:
    """Inserts records of one table. `put` replaces them."""

    def __init__(self, spec: TableSpec, sql: TableSql, retry: DeadlineRetry, put: PutAll, clock: Clock) -> None:
        self._spec = spec
        self._sql = sql
        self._retry = retry
        self._put = put
        self._clock = clock

    def takes(self, batch: Batch) -> bool:
        """Return whether all operations are puts that depend on nothing that is stored."""
        return batch.kind is Put and batch.has_only("key", "value", "ttl_s")

    async def put(self, puts: Batch, until: float) -> Sequence[Outcome]:
        """Put records. Parts whose values are large together are not inserted: rows of theirs take longest."""
        parts = [puts[at : at + STATEMENT_WRITES_MAX] for at in range(0, len(puts), STATEMENT_WRITES_MAX)]
        return joined_outcomes([await self._put_part(part, until) for part in parts])

    async def _put_part(self, puts: Batch, until: float) -> Sequence[Outcome]:
        if sum(map(len, puts.cells("value"))) > STATEMENT_BYTES_MAX:
            return await self._put(puts, until)
        try:
            return await self._retry.run_together(self._insert, puts, until)
        except RowsRejected:
            return await self._put(puts, until)
        except TableError as error:
            return [error] * len(puts)

    async def _insert(self, connection: Connection, puts: Any, progress: Progress) -> Results:
        now, default = self._clock(), self._spec.ttl_s
        expiries_ms = [expiry_ms(default if ttl_s is None else ttl_s, now) or None for ttl_s in puts.cells("ttl_s")]
        progress.applied = "unknown"
        etag = await connection.fetchval(
            self._sql.load, *self._sql.key_arrays(puts.keys), puts.cells("value"), expiries_ms
        )
        columns: dict[str, Sequence[Any]] = {"etag": [etag] * len(puts)}
        if any(expiries_ms):
            columns["expires_ms"] = [expires_ms or 0 for expires_ms in expiries_ms]
        return Results(Written, columns)
