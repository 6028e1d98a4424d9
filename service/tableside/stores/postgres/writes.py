"""Writes records: unconditional writes in one statement, others by compare-and-set.

A put of a document, or a delete, that has no precondition and no token replaces or removes the row whatever it is.
Another write reads the row and decides. It then inserts the row if there is none, or else updates or deletes it if its
etag is still the same. If the row has changed, or another transaction locks it, the write is decided again. Writes of
one record in this process take turns.

With a side table, a transaction first creates or locks the side row of every key, in the order of keys. Writes whose
side row has changed are decided again. So these rows serialize all of Tableside's writes.
"""

import asyncio
import math
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Literal, TypeAlias

import asyncpg
import msgspec

from ...core import (
    Changed,
    Clock,
    Contended,
    DeadlineExceeded,
    Delete,
    InvalidOperation,
    Key,
    Outcome,
    Put,
    RecordUnreadable,
    TableError,
    TableSpec,
    Update,
    Write,
    Written,
    Yielder,
    chunks_of,
    exponential_backoff_s,
    transition,
    with_etag,
)
from .columns import Texts, ValueLayout
from .connections import BEGIN, PAUSE_MAX_S, PAUSE_S, Connection, DeadlineRetry, Progress
from .errors import is_connection_error
from .reads import FoundRecord, RecordReader, SideRow, Writers, canonical, key_arrays, parse_writers, row_key
from .schema import EXPIRES, WRITERS
from .statements import TableSql

STATEMENT_WRITES_MAX = 1000
STATEMENT_BYTES_MAX = 2 * 2**20
"""Limits the total size of the values that one statement writes. Encoding 8 MiB would take up to 25 ms."""

ATTEMPTS_MAX = 64
"""How often a write is decided because other transactions change or lock its record in the meantime."""

_CONTENDED = "other writers changed the record during every attempt"

Attempt: TypeAlias = Outcome | Literal[False]
"""The outcome of a write, or False if another transaction has changed or locked the record that was read."""

Kind = Literal["insert", "update", "delete", "none"]
"""What a write does to the row of the table. A delete of an absent record may change only its row in the side table."""


class RowWrite(msgspec.Struct, frozen=True):
    """A decided write: the record that it found, and the texts of the data columns that it writes."""

    write: Write
    changed: Changed
    found: FoundRecord
    texts: Texts

    @property
    def key(self) -> Key:
        """Return the record's key."""
        return self.write.key

    def side_row(self, etag: str | None) -> SideRow:
        """Return the side row after the write. `etag` is that of the new record."""
        stored = self.changed.stored
        return SideRow() if stored is None else SideRow(int(etag) if etag else None, stored.expires_ms, stored.writers)


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
        self._retry = retry
        self._reader = reader
        self._clock = clock
        self._parts = len(spec.key.fields)
        self._turns = Turns()

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
        for chunk in chunks_of(puts, STATEMENT_WRITES_MAX, STATEMENT_BYTES_MAX, lambda put: len(put.value)):
            decided = [self._decided(put, FoundRecord(), self._clock()) for put in chunk]
            rows = [row for row in decided if isinstance(row, RowWrite)]
            written = iter(await self._retry.run_each(self._put, rows, until) if rows else [])
            outcomes += [next(written) if isinstance(each, RowWrite) else each for each in decided]
        return outcomes

    async def _delete_all(self, deletes: Sequence[Delete], until: float) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for chunk in chunks_of(deletes, STATEMENT_WRITES_MAX):
            outcomes += await self._retry.run_each(self._delete, chunk, until)
        return outcomes

    # Compare-and-set

    async def _compare_and_set(self, writes: Sequence[Write], until: float) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for chunk in chunks_of(writes, STATEMENT_WRITES_MAX):
            async with self._turns.take([write.key for write in chunk], until):
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

    async def _decide(self, writes: Sequence[Write], until: float) -> list[Attempt]:
        """Read records, decide, and write those that have not changed since."""
        outcomes: list[Attempt] = [False] * len(writes)
        groups: dict[Kind, dict[int, RowWrite]] = {}
        now, yielder = self._clock(), Yielder()
        for index, found in enumerate(await self._reader.find([write.key for write in writes], until)):
            if yielder.due:
                await yielder.maybe_yield()
            decided = found if isinstance(found, TableError) else self._decided(writes[index], found, now)
            if isinstance(decided, RowWrite):
                kind: Kind = "none" if self._sql.has_side_table else self._kind(decided)
                groups.setdefault(kind, {})[index] = decided
            else:
                outcomes[index] = decided
        for kind, rows in groups.items():
            work = self._write_with_side_rows if self._sql.has_side_table else partial(self._write_alone, kind)
            for chunk in chunks_of([*rows.items()], STATEMENT_WRITES_MAX, STATEMENT_BYTES_MAX, _size_bytes):
                results = await self._retry.run_each(work, [row for _, row in chunk], until)
                for (index, _), result in zip(chunk, results, strict=True):
                    outcomes[index] = result
        return outcomes

    def _decided(self, write: Write, found: FoundRecord, now_ms: int) -> Outcome | RowWrite:
        decided = transition(found.stored, write, self._spec, now_ms=now_ms, etag="")
        if not isinstance(decided, Changed):
            return decided.outcome
        try:
            return self._row(write, decided, found)
        except InvalidOperation as error:
            return error

    def _row(self, write: Write, changed: Changed, found: FoundRecord) -> RowWrite:
        """Return a decided write as a row. Raise InvalidOperation if the columns cannot store the value."""
        if isinstance(write, Update):
            self._layout.check_update(write, found.value)
        value = None if changed.stored is None else changed.stored.value
        texts = (self._layout.absent_texts or ()) if value is None else self._layout.column_texts(value, found.value)
        return RowWrite(write, changed, found, texts)

    def _kind(self, row: RowWrite) -> Kind:
        stored = row.changed.stored
        is_removed = stored is None or (stored.value is None and self._sql.has_side_table)
        if not row.found.etag:
            return "none" if is_removed else "insert"
        return "delete" if is_removed else "update"

    # Statements

    async def _put(self, connection: Connection, rows: Sequence[RowWrite], progress: Progress) -> list[Outcome]:
        progress.applied = "unknown"
        now = [self._clock()] if self._sql.put_takes_time else []
        written = await self._send(self._sql.put, connection, rows, progress, *now)
        return [self._outcome(row, *written.get(row.key, (None, None))) for row in rows]

    async def _delete(self, connection: Connection, deletes: Sequence[Delete], progress: Progress) -> list[Outcome]:
        progress.applied = "unknown"
        await connection.execute(self._sql.unconditional_delete, *self._key_arrays([each.key for each in deletes]))
        return [Written(None)] * len(deletes)

    async def _write_alone(
        self, kind: Kind, connection: Connection, rows: Sequence[RowWrite], progress: Progress
    ) -> list[Attempt]:
        """Write rows in one statement, which commits."""
        progress.applied = "unknown"
        return await self._execute(kind, connection, rows, progress)

    async def _execute(
        self, kind: Kind, connection: Connection, rows: Sequence[RowWrite], progress: Progress
    ) -> list[Attempt]:
        """Execute the statement of a kind. A result is False if the row has changed, or is locked."""
        progress.rows = rows
        if kind == "none":
            return [row.changed.outcome for row in rows]
        if kind == "delete":
            keys = self._key_arrays([row.key for row in rows])
            deleted = await connection.fetch(self._sql.delete, *keys, [row.found.etag for row in rows])
            gone = {row_key(each, self._parts) for each in deleted}
            return [row.changed.outcome if row.key in gone else False for row in rows]
        statement = self._sql.insert if kind == "insert" else self._sql.update
        written = await self._send(statement, connection, rows, progress)
        return [self._outcome(row, *written[row.key]) if row.key in written else False for row in rows]

    async def _send(
        self, statement: str, connection: Connection, rows: Sequence[RowWrite], progress: Progress, *more: int
    ) -> dict[Key, tuple[str | None, bytes | None]]:
        """Execute a statement with rows. Return by key the etags, and the values if a write requests one.

        Values are returned only if the columns may not preserve their text.
        """
        progress.rows = rows
        returns_values = not self._layout.preserves_text and any(_returns_value(row.write) for row in rows)
        found = await connection.fetch(statement, *self._row_arrays(rows), returns_values, *more)
        return {row_key(each, self._parts): (each[self._parts], each[self._parts + 1]) for each in found}

    def _outcome(self, row: RowWrite, etag: str | None, value: bytes | None) -> Outcome:
        if etag is None:
            return InvalidOperation(
                f"table {self._spec.name!r}: a trigger or policy of the table left the record unchanged"
            )
        outcome = with_etag(row.changed, etag).outcome
        if value is None or not isinstance(outcome, Written) or outcome.value is None:
            return outcome
        text = canonical(value)
        return outcome if isinstance(text, RecordUnreadable) else msgspec.structs.replace(outcome, value=text)

    def _key_arrays(self, keys: Sequence[Key]) -> list[list[Any]]:
        return key_arrays(keys, self._parts)

    def _row_arrays(self, rows: Sequence[RowWrite]) -> list[list[Any]]:
        """Return one array for each column to write: key parts, data columns, metadata columns and etags."""
        arrays = self._key_arrays([row.key for row in rows])
        arrays += [list(column) for column in zip(*(row.texts for row in rows), strict=True)]
        sides = [row.side_row(None) for row in rows]
        if EXPIRES in self._sql.metadata:
            arrays.append([side.expires_ms or None for side in sides])
        if WRITERS in self._sql.metadata:
            arrays.append([_writers_text(side.writers) for side in sides])
        return [*arrays, [row.found.etag for row in rows]]

    # The side table

    async def _write_with_side_rows(
        self, connection: Connection, rows: Sequence[RowWrite], progress: Progress
    ) -> list[Attempt]:
        """Write rows and their side rows in one transaction. A result is False if one of the two has changed."""
        keys = [row.key for row in rows]
        results: dict[Key, Attempt] = dict.fromkeys(keys, False)
        async with _transaction(connection):
            locked = await connection.fetch(self._sql.side_lock, *self._key_arrays(keys))
            sides = {row_key(each, self._parts): _side_row(*each[self._parts :]) for each in locked}
            groups: dict[Kind, list[RowWrite]] = {}
            for row in rows:
                if row.found.side == sides[row.key]:
                    groups.setdefault(self._kind(row), []).append(row)
            for kind, group in groups.items():
                outcomes = await self._execute(kind, connection, group, progress)
                results |= zip([row.key for row in group], outcomes, strict=True)
            await self._update_side_rows(connection, rows, sides, results)
            progress.applied = "unknown"
            await connection.execute("COMMIT")
        return [*results.values()]

    async def _update_side_rows(
        self,
        connection: Connection,
        rows: Sequence[RowWrite],
        before: Mapping[Key, SideRow],
        results: Mapping[Key, Attempt],
    ) -> None:
        """Write the side rows of written records, and delete those without content."""
        after = dict(before)
        for row in rows:
            if isinstance(result := results[row.key], Written):
                after[row.key] = row.side_row(result.etag)
        if changed := {key: side for key, side in after.items() if side not in (SideRow(), before[key])}:
            versions = [side.version for side in changed.values()]
            expiries = [side.expires_ms or None for side in changed.values()]
            writers = [_writers_text(side.writers) for side in changed.values()]
            await connection.execute(self._sql.side_update, *self._key_arrays([*changed]), versions, expiries, writers)
        if empty := [key for key, side in after.items() if side == SideRow()]:
            await connection.execute(self._sql.side_delete, *self._key_arrays(empty))


class Turns:
    """Lets writes of the same record take turns, so that they do not conflict with each other."""

    def __init__(self) -> None:
        self._last: dict[Key, asyncio.Future[None]] = {}

    @asynccontextmanager
    async def take(self, keys: Sequence[Key], until: float) -> AsyncIterator[None]:
        """Wait until the earlier writes of these records have ended, or until the deadline."""
        ended = asyncio.get_running_loop().create_future()
        earlier = {self._last[key] for key in keys if key in self._last}
        self._last.update(dict.fromkeys(keys, ended))
        try:
            if earlier:
                await asyncio.wait(earlier, timeout=None if until == math.inf else max(0.0, until - time.monotonic()))
            yield
        finally:
            ended.set_result(None)
            for key in keys:
                if self._last.get(key) is ended:
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


def _side_row(version: int | None, expires_ms: int | None, writers: str | None) -> SideRow:
    return SideRow(version, expires_ms or 0, parse_writers(writers))


def _writers_text(writers: Writers) -> str | None:
    """Return the text that is stored for writers, or None if there are none."""
    return msgspec.json.encode(writers).decode() if writers else None


def _size_bytes(item: tuple[int, RowWrite]) -> int:
    stored = item[1].changed.stored
    return 0 if stored is None or stored.value is None else len(stored.value)


def _returns_value(write: Write) -> bool:
    return not isinstance(write, Delete) and write.returning
