"""Writes records: unconditional writes in one statement, others by compare-and-set.

A put of a document, or a delete, replaces or removes the row whatever it is, unless it has a precondition or is
remembered. Another write reads the row and decides. It then inserts the row if there is none, or else updates or
deletes it if its etag is still the same. If the row has changed, or another transaction locks it, the write is decided
again. Writes of one record in this process take turns.

Several of these writes are one transaction, so that it can be repeated if the server rejects one of them. With a side
table, every transaction first creates or locks the side row of every key, in the order of keys. These rows serialize
all of Tableside's writes.
"""

import asyncio
import math
import random
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Literal, TypeAlias, get_args

import msgspec
from asyncpg.exceptions import UniqueViolationError

from ...core import (
    UPDATE_BYTES_MAX,
    Batch,
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
    RecordUnreadable,
    Results,
    TableError,
    TableSpec,
    Update,
    Write,
    Written,
    Yielder,
    chunks_of,
    expiry_ms,
    exponential_backoff_s,
    joined_outcomes,
    size_bytes,
    transition,
    with_etag,
)
from .columns import ValueLayout
from .connections import BEGIN, PAUSE_MAX_S, PAUSE_S, Connection, DeadlineRetry, Progress, Texts
from .reads import FoundRecord, RecordReader, SideRow, canonical, memory_text, parse_memory
from .schema import EXPIRES, WRITERS
from .statements import TableSql

STATEMENT_WRITES_MAX = 1000
STATEMENT_BYTES_MAX = 2 * 2**20
"""Limits the total size of the values that one statement writes. Encoding 8 MiB would take up to 25 ms."""

ATTEMPTS_MAX = 64
"""How often a write is decided because other transactions change or lock its record in the meantime."""

Attempt: TypeAlias = Outcome | Literal[False]
"""The outcome of a write, or False if another transaction has changed or locked the record that was read."""

Kind = Literal["insert", "update", "delete", "none"]
"""What a write does to the row of the table. A delete of an absent record may change only its row in the side table.

A transaction inserts first, because only inserts wait for other transactions: so it waits before it has locked rows.
"""

_DOCUMENT_PUT = ("key", "value", "ttl_s", "returning", "partitions")
"""The members of a put that needs no read of a document."""

_CONTENDED = "other writers changed the record during every attempt"


class RowWrite(msgspec.Struct, frozen=True):
    """A decided write: the record that it found, and the texts of the data columns that it writes."""

    write: Write
    changed: Changed
    found: FoundRecord
    texts: Texts
    kind: Kind

    @property
    def key(self) -> Key:
        """Return the record's key."""
        return self.write.key

    @property
    def size_bytes(self) -> int:
        """Return the size of the value and the memory that are written."""
        stored = self.changed.stored
        return 0 if stored is None else len(stored.value or b"") + stored.memory.size_bytes

    def side_row(self, etag: str | None) -> SideRow:
        """Return the side row after the write. `etag` is that of the new record."""
        stored = self.changed.stored
        if stored is None:
            return SideRow()
        return SideRow(int(etag) if etag else None, stored.expires_ms, stored.memory)


class RecordWriter:
    """Writes records of one table, and their rows in its side table."""

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
        self._last: dict[Key, asyncio.Future[None]] = {}
        self._bounded = BoundedReads(UPDATE_BYTES_MAX)

    async def apply(self, writes: Batch, until: float) -> Sequence[Outcome]:
        """Apply writes of one kind. Only those with none but the members listed here need no read."""
        if self._sql.has_side_table:
            return await self._compare_and_set(writes, until)
        if writes.kind is Delete and writes.has_only("key", "forget", "partitions"):
            return await self._delete_all(writes, until)
        if writes.kind is Put and self._layout.preserves_text and writes.has_only(*_DOCUMENT_PUT):
            return await self._put_all(writes, until)
        return await self._compare_and_set(writes, until)

    # Unconditional writes

    async def _put_all(self, puts: Batch, until: float) -> Sequence[Outcome]:
        """Put documents that depend on nothing that is stored."""
        chunks = chunks_of(puts, STATEMENT_WRITES_MAX, STATEMENT_BYTES_MAX, size_bytes)
        return joined_outcomes([await self._retry.run_each(self._put, chunk, until) for chunk in chunks])

    async def _delete_all(self, deletes: Batch, until: float) -> Sequence[Outcome]:
        chunks = chunks_of(deletes, STATEMENT_WRITES_MAX)
        return joined_outcomes([await self._retry.run_each(self._delete, chunk, until) for chunk in chunks])

    async def _put(self, connection: Connection, puts: Any, progress: Progress) -> Results:
        values, now, default = puts.cells("value"), self._clock(), self._spec.ttl_s
        expiries_ms = [expiry_ms(default if ttl_s is None else ttl_s, now) for ttl_s in puts.cells("ttl_s")]
        progress.applied, progress.texts = "unknown", [(value,) for value in values]
        etag, count, *keys = await self._put_rows(connection, puts, [expires_ms or None for expires_ms in expiries_ms])
        columns: dict[str, Sequence[Any]] = {"etag": [etag] * len(puts)}
        if any(expiries_ms):
            columns["expires_ms"] = expiries_ms
        if puts.has("returning"):
            both = zip(values, puts.cells("returning"), strict=True)
            columns["value"] = [value if returning else None for value, returning in both]
        return Results(Written, columns, self._not_written(puts, count, keys))

    async def _put_rows(self, connection: Connection, puts: Batch, expiries_ms: Sequence[int | None]) -> Any:
        """Replace records. In a generation that loads they are new, unless a task of the job was repeated."""
        keys, values = self._sql.key_arrays(puts.keys), puts.cells("value")
        if self._spec.loading:
            with suppress(UniqueViolationError):
                return (await connection.fetch(self._sql.load, *keys, values, expiries_ms))[0]
        metadata = [expiries_ms if name == EXPIRES else [None] * len(puts) for name in self._sql.metadata]
        rows = [*keys, values, *metadata, [""] * len(puts)]
        return (await connection.fetch(self._sql.put, *rows, False, *self._time()))[0]

    def _not_written(self, puts: Batch, count: int, keys: Sequence[Any]) -> dict[int, TableError]:
        """Return the errors of puts whose rows a trigger left unchanged."""
        if count == len(puts):
            return {}
        written = set(keys[0] if len(keys) == 1 else zip(*keys, strict=True)) if count else ()
        return {at: self._ignored() for at, key in enumerate(puts.keys) if key not in written}

    async def _delete(self, connection: Connection, deletes: Sequence[Any], progress: Progress) -> list[Outcome]:
        progress.applied = "unknown"
        for forget in {each.forget for each in deletes}:
            keys = self._sql.key_arrays([each.key for each in deletes if each.forget == forget])
            await connection.execute(self._sql.unconditional_delete, *keys, forget, *self._time())
        return [Written(None)] * len(deletes)

    def _time(self) -> list[int]:
        return [self._clock()] if self._sql.takes_time else []

    # Compare-and-set

    async def _compare_and_set(self, writes: Sequence[Any], until: float) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for chunk in chunks_of(writes, STATEMENT_WRITES_MAX, STATEMENT_BYTES_MAX, size_bytes):
            async with self._turn([write.key for write in chunk], until):
                outcomes += await self._decide_until_applied(chunk, until)
        return outcomes

    @asynccontextmanager
    async def _turn(self, keys: Sequence[Key], until: float) -> AsyncIterator[None]:
        """Wait until the earlier writes of the records have ended, at most until the deadline, to avoid conflicts."""
        earlier = {self._last[key] for key in keys if key in self._last}
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
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

    async def _decide_until_applied(self, writes: Sequence[Write], until: float) -> list[Outcome]:
        outcomes: list[Attempt] = [False] * len(writes)
        failure: TableError = Contended(f"table {self._spec.name!r}: {_CONTENDED}")
        for attempt in range(ATTEMPTS_MAX):
            waiting = [index for index, outcome in enumerate(outcomes) if outcome is False]
            for index, outcome in zip(waiting, await self._attempt([writes[at] for at in waiting], until), strict=True):
                outcomes[index] = outcome
            if False not in outcomes:
                break
            pause_s = exponential_backoff_s(attempt, PAUSE_S, PAUSE_MAX_S, random.random)
            if time.monotonic() + pause_s >= until:
                failure = DeadlineExceeded(f"table {self._spec.name!r}: {_CONTENDED}")
                break
            await asyncio.sleep(pause_s)
        return [failure if outcome is False else outcome for outcome in outcomes]

    async def _attempt(self, writes: Sequence[Write], until: float) -> Sequence[Attempt]:
        """Try each write once, except those whose records are larger than the limit for one call."""
        return await self._bounded.read(
            writes, lambda some, budget: self._retry.run_each(partial(self._decide, budget), some, until)
        )

    async def _decide(
        self, budget: ReadBudget, connection: Connection, writes: Sequence[Write], progress: Progress
    ) -> Sequence[Attempt]:
        """Read records, decide, and write those that have not changed since. Only one statement needs no BEGIN."""
        together = len(writes) > 1 or self._sql.has_side_table
        if together and not connection.is_in_transaction():
            await connection.execute(BEGIN)
        sides = await self._lock_side_rows(budget, connection, [write.key for write in writes])
        found = await self._reader.find(budget, connection, [write.key for write in writes])
        decided = await self._decided_all(writes, found, sides)
        outcomes = await self._write_all(decided, connection, progress, commits=not together)
        await self._update_side_rows(connection, sides, decided, outcomes)
        if together:
            progress.applied = "unknown"
            await connection.execute("COMMIT")
        return outcomes

    async def _decided_all(
        self, writes: Sequence[Write], found: Sequence[FoundRecord | TableError], sides: Mapping[Key, SideRow]
    ) -> list[Outcome | RowWrite]:
        """Decide writes, except those whose record could not be read."""
        now, yielder = self._clock(), Yielder()
        decided: list[Outcome | RowWrite] = []
        for write, each in zip(writes, found, strict=True):
            if yielder.due:
                await yielder.maybe_yield()
            if isinstance(each, TableError):
                decided.append(each)
            else:
                decided.append(self._decided(write, each.with_side_row(sides[write.key]) if sides else each, now))
        return decided

    def _decided(self, write: Write, found: FoundRecord, now_ms: int) -> Outcome | RowWrite:
        changed = transition(found.stored, write, self._spec, now_ms=now_ms, etag="")
        if not isinstance(changed, Changed):
            return changed.outcome
        try:
            if isinstance(write, Update):
                self._layout.check_update(write, found.value)
            return RowWrite(write, changed, found, self._texts(changed, found), self._kind(changed, found))
        except InvalidOperation as error:
            return error

    def _texts(self, changed: Changed, found: FoundRecord) -> Texts:
        """Return the texts to write. Raise InvalidOperation if the columns cannot store the value."""
        value = None if changed.stored is None else changed.stored.value
        return (self._layout.absent_texts or ()) if value is None else self._layout.column_texts(value, found.value)

    def _kind(self, changed: Changed, found: FoundRecord) -> Kind:
        is_removed = changed.stored is None or (changed.stored.value is None and self._sql.has_side_table)
        if not found.etag:
            return "none" if is_removed else "insert"
        return "delete" if is_removed else "update"

    async def _write_all(
        self, decided: Sequence[Outcome | RowWrite], connection: Connection, progress: Progress, *, commits: bool
    ) -> list[Attempt]:
        """Write the decided rows. `commits`: each statement commits."""
        outcomes: list[Attempt] = [False if isinstance(each, RowWrite) else each for each in decided]
        rows = [(index, each) for index, each in enumerate(decided) if isinstance(each, RowWrite)]
        for kind in sorted({row.kind for _, row in rows}, key=get_args(Kind).index):
            alike = [(index, row) for index, row in rows if row.kind == kind]
            for chunk in chunks_of(alike, STATEMENT_WRITES_MAX, STATEMENT_BYTES_MAX, lambda item: item[1].size_bytes):
                progress.applied = "unknown" if commits else "no"
                results = await self._write(kind, [row for _, row in chunk], connection, progress)
                for (index, _), result in zip(chunk, results, strict=True):
                    outcomes[index] = result
        return outcomes

    async def _write(
        self, kind: Kind, rows: Sequence[RowWrite], connection: Connection, progress: Progress
    ) -> list[Attempt]:
        """Execute the statement of a kind. A result is False if the row has changed, or is locked."""
        if kind == "none":
            return [row.changed.outcome for row in rows]
        if kind == "delete":
            progress.texts = [row.texts for row in rows]
            keys = self._sql.key_arrays([row.key for row in rows])
            deleted = await connection.fetch(self._sql.delete, *keys, [row.found.etag for row in rows])
            gone = {self._sql.key_of(each) for each in deleted}
            return [row.changed.outcome if row.key in gone else False for row in rows]
        statement = self._sql.insert if kind == "insert" else self._sql.update
        written = await self._send(statement, connection, rows, progress)
        if kind == "update" and not written:  # Another transaction is in the way, or a trigger.
            written = await self._send(self._sql.update_or_match, connection, rows, progress)
        return [self._outcome(row, *written[row.key]) if row.key in written else False for row in rows]

    # Rows

    async def _send(
        self, statement: str, connection: Connection, rows: Sequence[RowWrite], progress: Progress
    ) -> dict[Key, tuple[str | None, bytes | None]]:
        """Execute a statement with rows. Return by key the etags, and the values if a write requests one.

        An etag is None if a trigger left the row unchanged. Values are returned only if the columns may not preserve
        their text.
        """
        progress.texts = [row.texts for row in rows]
        returns_values = not self._layout.preserves_text and any(getattr(row.write, "returning", False) for row in rows)
        found = await connection.fetch(statement, *self._row_arrays(rows), returns_values)
        return {self._sql.key_of(each): (each[-2], each[-1]) for each in found}

    def _outcome(self, row: RowWrite, etag: str | None, value: bytes | None) -> Outcome:
        if etag is None:
            return self._ignored()
        outcome = with_etag(row.changed, etag).outcome
        if value is None or not isinstance(outcome, Written) or outcome.value is None:
            return outcome
        text = canonical(value)
        return outcome if isinstance(text, RecordUnreadable) else msgspec.structs.replace(outcome, value=text)

    def _ignored(self) -> InvalidOperation:
        reason = "a trigger or policy of the table left the record unchanged"
        return InvalidOperation(f"table {self._spec.name!r}: {reason}")

    def _row_arrays(self, rows: Sequence[RowWrite]) -> list[list[Any]]:
        """Return one array for each column to write: key parts, data columns, metadata columns and etags."""
        arrays = self._sql.key_arrays([row.key for row in rows])
        arrays += [list(column) for column in zip(*(row.texts for row in rows), strict=True)]
        stored = [row.changed.stored for row in rows]
        if EXPIRES in self._sql.metadata:
            arrays.append([each.expires_ms or None if each else None for each in stored])
        if WRITERS in self._sql.metadata:
            arrays.append([memory_text(each.memory) if each else None for each in stored])
        return [*arrays, [row.found.etag for row in rows]]

    # The side table

    async def _lock_side_rows(
        self, budget: ReadBudget, connection: Connection, keys: Sequence[Key]
    ) -> dict[Key, SideRow]:
        """Return the rows of the side table, locked until the transaction ends. Create those of new keys."""
        if not self._sql.has_side_table:
            return {}
        sides = {}
        for row in await connection.fetch(self._sql.side_lock, *self._sql.key_arrays(keys)):
            version, expires_ms, writers = row[-3:]
            budget.spend(len(writers or ""))
            sides[self._sql.key_of(row)] = SideRow(version, expires_ms or 0, parse_memory(writers))
        return sides

    async def _update_side_rows(
        self,
        connection: Connection,
        before: Mapping[Key, SideRow],
        decided: Sequence[Outcome | RowWrite],
        outcomes: Sequence[Attempt],
    ) -> None:
        """Write the side rows that have changed, and delete those without content."""
        after = dict(before)
        for row, outcome in zip(decided, outcomes, strict=True) if before else ():
            if isinstance(row, RowWrite) and isinstance(outcome, Written):
                after[row.key] = row.side_row(outcome.etag)
        if changed := {key: side for key, side in after.items() if side not in (SideRow(), before[key])}:
            versions = [side.version for side in changed.values()]
            expiries = [side.expires_ms or None for side in changed.values()]
            memories = [memory_text(side.memory) for side in changed.values()]
            keys = self._sql.key_arrays([*changed])
            await connection.execute(self._sql.side_update, *keys, versions, expiries, memories)
        if empty := [key for key, side in after.items() if side == SideRow()]:
            await connection.execute(self._sql.side_delete, *self._sql.key_arrays(empty))
