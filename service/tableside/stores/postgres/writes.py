"""Writes records: unconditional writes in one statement, others by compare-and-set.

A put of a document, or a delete, that has no precondition and no token replaces or removes the row whatever it is.
Another write reads the row and decides. It then inserts the row if there is none, or else updates or deletes it if its
etag is still the same. If the row has changed, or another transaction locks it, the write is decided again. Writes of
one record in this process take turns.

With a side table, one transaction does this for all records. It first creates or locks the side row of every key, in
the order of keys. These rows serialize all of Tableside's writes.
"""

import asyncio
import math
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import asyncpg

from ...core import (
    UPDATE_BYTES_MAX,
    BoundedReads,
    Changed,
    Clock,
    Contended,
    DeadlineExceeded,
    Delete,
    InvalidOperation,
    Key,
    Outcome,
    Put,
    ReadBudget,
    TableError,
    TableSpec,
    Write,
    Written,
    Yielder,
    chunks_of,
    exponential_backoff_s,
    size_bytes,
    transition,
)
from .columns import ValueLayout
from .connections import BEGIN, PAUSE_MAX_S, PAUSE_S, Connection, DeadlineRetry, Progress
from .errors import is_connection_error
from .reads import FoundRecord, RecordReader
from .rows import Attempt, Kind, RowWrite, RowWriter
from .statements import TableSql

STATEMENT_WRITES_MAX = 1000
STATEMENT_BYTES_MAX = 2 * 2**20
"""Limits the total size of the values that one statement writes. Encoding 8 MiB would take up to 25 ms."""

ATTEMPTS_MAX = 64
"""How often a write is decided because other transactions change or lock its record in the meantime."""

_CONTENDED = "other writers changed the record during every attempt"


class RecordWriter:
    """Writes records of one table."""

    def __init__(
        self,
        spec: TableSpec,
        layout: ValueLayout,
        sql: TableSql,
        retry: DeadlineRetry,
        reader: RecordReader,
        clock: Clock,
    ) -> None:
        self._spec = spec
        self._layout = layout
        self._sql = sql
        self._rows = RowWriter(spec, layout, sql, clock)
        self._retry = retry
        self._reader = reader
        self._clock = clock
        self._last: dict[Key, asyncio.Future[None]] = {}
        self._bounded = BoundedReads(UPDATE_BYTES_MAX)

    def method(self, write: Write) -> Callable[[Sequence[Any], float], Awaitable[Sequence[Outcome]]]:
        """Return the method that applies a write. Only a write with none but the members listed here needs no read."""
        if self._sql.has_side_table:
            return self._compare_and_set
        if isinstance(write, Delete) and write == Delete(write.key, partitions=write.partitions):
            return self._delete_all
        if self._layout.preserves_text and isinstance(write, Put) and write == _document_put(write):
            return self._put_all
        return self._compare_and_set

    async def _put_all(self, puts: Sequence[Put], until: float) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for chunk in chunks_of(puts, STATEMENT_WRITES_MAX, STATEMENT_BYTES_MAX, size_bytes):
            decided = [self._decided(put, FoundRecord(), self._clock()) for put in chunk]
            rows = [row for row in decided if isinstance(row, RowWrite)]
            written = iter(await self._retry.run_each(self._rows.put, rows, until) if rows else [])
            outcomes += [next(written) if isinstance(each, RowWrite) else each for each in decided]
        return outcomes

    async def _delete_all(self, deletes: Sequence[Delete], until: float) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for chunk in chunks_of(deletes, STATEMENT_WRITES_MAX):
            outcomes += await self._retry.run_each(self._rows.delete, chunk, until)
        return outcomes

    # Compare-and-set

    async def _compare_and_set(self, writes: Sequence[Write], until: float) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for chunk in chunks_of(writes, STATEMENT_WRITES_MAX, STATEMENT_BYTES_MAX, size_bytes):
            async with Turn(self._last, [write.key for write in chunk], until):
                outcomes += await self._decide_until_applied(chunk, until)
        return outcomes

    async def _decide_until_applied(self, writes: Sequence[Write], until: float) -> list[Outcome]:
        outcomes: list[Attempt] = [False] * len(writes)
        failure: TableError = Contended(f"table {self._spec.name!r}: {_CONTENDED}")
        for attempt in range(ATTEMPTS_MAX):
            waiting = [index for index, outcome in enumerate(outcomes) if outcome is False]
            for index, outcome in zip(waiting, await self._decide([writes[at] for at in waiting], until), strict=True):
                outcomes[index] = outcome
            if False not in outcomes:
                break
            pause_s = exponential_backoff_s(attempt, PAUSE_S, PAUSE_MAX_S, random.random)
            if time.monotonic() + pause_s >= until:
                failure = DeadlineExceeded(f"table {self._spec.name!r}: {_CONTENDED}")
                break
            await asyncio.sleep(pause_s)
        return [failure if outcome is False else outcome for outcome in outcomes]

    async def _decide(self, writes: Sequence[Write], until: float) -> Sequence[Attempt]:
        """Read records, decide, and write those that have not changed since."""
        if self._sql.has_side_table:
            return await self._run_bounded(self._decide_with_side_rows, writes, until)
        if len(writes) == 1:
            return await self._retry.run_each(self._decide_one, writes, until)
        found = await self._run_bounded(self._reader.find, [write.key for write in writes], until)
        decided = await self._decided_all(writes, found)
        outcomes: list[Attempt] = [False if isinstance(each, RowWrite) else each for each in decided]
        for kind, rows in self._by_kind(decided).items():
            work = partial(self._write_alone, kind)
            for chunk in chunks_of([*rows.items()], STATEMENT_WRITES_MAX, STATEMENT_BYTES_MAX, _row_bytes):
                results = await self._retry.run_each(work, [row for _, row in chunk], until)
                for (index, _), result in zip(chunk, results, strict=True):
                    outcomes[index] = result
        return outcomes

    async def _run_bounded(self, work: Callable[..., Any], items: Sequence[Any], until: float) -> Sequence[Any]:
        """Run work for some of the items, so that it reads a bounded number of bytes. The others are NOT_READ."""
        return await self._bounded.read(
            items, lambda some, budget: self._retry.run_each(partial(work, budget), some, until)
        )

    async def _decide_one(
        self, connection: Connection, writes: Sequence[Write], progress: Progress
    ) -> Sequence[Attempt]:
        """Read one record, decide, and write it if it has not changed since."""
        [write] = writes
        [found] = await self._reader.find(ReadBudget(math.inf), connection, [write.key], progress)
        decided = found if isinstance(found, TableError) else self._decided(write, found, self._clock())
        if not isinstance(decided, RowWrite):
            return [decided]
        return await self._write_alone(self._rows.kind(decided), connection, [decided], progress)

    async def _decided_all(
        self, writes: Sequence[Write], found: Sequence[FoundRecord | TableError]
    ) -> list[Outcome | RowWrite]:
        """Decide writes, except those whose record could not be read."""
        now, yielder = self._clock(), Yielder()
        decided: list[Outcome | RowWrite] = []
        for write, each in zip(writes, found, strict=True):
            if yielder.due:
                await yielder.maybe_yield()
            decided.append(each if isinstance(each, TableError) else self._decided(write, each, now))
        return decided

    def _by_kind(self, decided: Sequence[Outcome | RowWrite]) -> dict[Kind, dict[int, RowWrite]]:
        groups: dict[Kind, dict[int, RowWrite]] = {}
        for index, row in enumerate(decided):
            if isinstance(row, RowWrite):
                groups.setdefault(self._rows.kind(row), {})[index] = row
        return groups

    def _decided(self, write: Write, found: FoundRecord, now_ms: int) -> Outcome | RowWrite:
        decided = transition(found.stored, write, self._spec, now_ms=now_ms, etag="")
        if not isinstance(decided, Changed):
            return decided.outcome
        try:
            return self._rows.row(write, decided, found)
        except InvalidOperation as error:
            return error

    async def _write_alone(
        self, kind: Kind, connection: Connection, rows: Sequence[RowWrite], progress: Progress
    ) -> list[Attempt]:
        """Write rows in one statement, which commits."""
        progress.applied = "unknown"
        return await self._rows.write(kind, connection, rows, progress)

    async def _decide_with_side_rows(
        self, budget: ReadBudget, connection: Connection, writes: Sequence[Write], progress: Progress
    ) -> list[Attempt]:
        """Decide and write records, and their side rows, in one transaction."""
        keys = [write.key for write in writes]
        async with _transaction(connection):
            sides = await self._rows.lock_side_rows(connection, keys)
            found = await self._reader.find(budget, connection, keys, progress)
            with_sides = [
                each if isinstance(each, TableError) else each.with_side_row(sides[key])
                for key, each in zip(keys, found, strict=True)
            ]
            decided = await self._decided_all(writes, with_sides)
            outcomes: list[Attempt] = [False if isinstance(each, RowWrite) else each for each in decided]
            after = dict(sides)
            for kind, rows in self._by_kind(decided).items():
                results = await self._rows.write(kind, connection, [*rows.values()], progress)
                for (index, row), result in zip(rows.items(), results, strict=True):
                    outcomes[index] = result
                    if isinstance(result, Written):
                        after[row.key] = row.side_row(result.etag)
            await self._rows.update_side_rows(connection, sides, after)
            progress.applied = "unknown"
            await connection.execute("COMMIT")
        return outcomes


class Turn:
    """Lets a write wait until the earlier writes of its records have ended, so that they do not conflict.

    `last` has the end of the last write of each record. At the deadline, the wait ends.
    """

    def __init__(self, last: dict[Key, asyncio.Future[None]], keys: Sequence[Key], until: float) -> None:
        self._last = last
        self._keys = keys
        self._until = until
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def __aenter__(self) -> None:
        earlier = {self._last[key] for key in self._keys if key in self._last}
        self._last.update(dict.fromkeys(self._keys, self._ended))
        if earlier:
            left_s = None if self._until == math.inf else max(0.0, self._until - time.monotonic())
            try:
                await asyncio.wait(earlier, timeout=left_s)
            except asyncio.CancelledError:
                self._end()
                raise

    async def __aexit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        self._ended.set_result(None)
        for key in self._keys:
            if self._last.get(key) is self._ended:
                del self._last[key]


@asynccontextmanager
async def _transaction(connection: Connection) -> AsyncIterator[None]:
    """Begin a transaction, and roll it back if the server rejects a statement. The block itself must commit."""
    await connection.execute(BEGIN)
    try:
        yield
    except asyncpg.PostgresError as error:
        if not is_connection_error(error):
            await connection.execute("ROLLBACK")
        raise


def _document_put(put: Put) -> Put:
    """Return the put with only those members that need no read of a document."""
    return Put(put.key, put.value, ttl_s=put.ttl_s, returning=put.returning, partitions=put.partitions)


def _row_bytes(item: tuple[int, RowWrite]) -> int:
    stored = item[1].changed.stored
    return 0 if stored is None or stored.value is None else len(stored.value)
