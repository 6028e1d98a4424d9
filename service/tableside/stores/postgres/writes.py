"""Writes records: unconditional writes in one statement, others by compare-and-set.

A put of a document, or a delete, replaces or removes the row whatever it is, unless it has a precondition or is
remembered. Another write reads the row and decides. It then inserts the row if there is none, or else updates or
deletes it if its etag is still the same. If the row has changed, or another transaction locks it, the write is decided
again. Writes of one record in this process take turns.

Several of these writes are one transaction, so that it can be repeated if the server rejects one of them. With a side
table, every transaction first creates or locks the side row of every key, in the order of keys. These rows serialize
all of Tableside's writes.
"""

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Literal, TypeAlias, get_args

import msgspec
from asyncpg.exceptions import UniqueViolationError

from ...core import (
    UPDATE_BYTES_MAX,
    Batch,
    BoundedReads,
    Clock,
    CompareAndSet,
    Delete,
    InvalidOperation,
    Key,
    Outcome,
    Put,
    ReadBudget,
    RecordUnreadable,
    Replacement,
    Results,
    Stored,
    TableError,
    TableSpec,
    Update,
    VersionedRecord,
    Write,
    Written,
    Yielder,
    chunks_of,
    expiries_ms,
    joined_outcomes,
    put_columns,
    size_bytes,
    with_etag,
)
from .connections import BEGIN, Connection, DeadlineRetry, Progress, Texts
from .reads import RecordReader, SideRow, canonical, memory_text
from .schema import EXPIRES, WRITERS
from .statements import TableSql

STATEMENT_WRITES_MAX = 1000
STATEMENT_BYTES_MAX = 2 * 2**20
"""Limits the total size of the values that one statement writes. Encoding 8 MiB would take up to 25 ms."""

Attempt: TypeAlias = Outcome | Literal[False]
"""The outcome of a write, or False if another transaction has changed or locked the record that was read."""

Kind = Literal["insert", "update", "delete", "none"]
"""What a write does to the row of the table. A delete of an absent record may change only its row in the side table.

A transaction inserts first, because only inserts wait for other transactions: so it waits before it has locked rows.
"""

_DOCUMENT_PUT = ("key", "value", "ttl_s", "returning", "partitions")
"""The members of a put that needs no read of a document."""


class RowWrite(Replacement, frozen=True):
    """A decided write, with the texts of the data columns that it writes."""

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
        return 0 if stored is None else len(stored.value or b"") + len(stored.memory.orders)


class RecordWriter:
    """Writes records of one table, and their rows in its side table."""

    def __init__(
        self, spec: TableSpec, sql: TableSql, retry: DeadlineRetry, reader: RecordReader, clock: Clock
    ) -> None:
        self._spec = spec
        self._layout = sql.layout
        self._sql = sql
        self._retry = retry
        self._reader = reader
        self._clock = clock
        self._bounded = BoundedReads(UPDATE_BYTES_MAX)
        self._compare_and_set = CompareAndSet(spec, self, clock=clock)

    async def apply(self, writes: Batch, until: float) -> Sequence[Outcome]:
        """Apply writes of one kind. Only those with none but the members listed here need no read."""
        apply: Callable[[Any, float], Awaitable[Sequence[Outcome]]] = self._compare_and_set.apply
        chunks = chunks_of(writes, STATEMENT_WRITES_MAX, STATEMENT_BYTES_MAX, size_bytes)
        if not self._sql.has_side_table:
            if writes.kind is Delete and writes.has_only("key", "forget", "partitions"):
                apply, chunks = partial(self._retry.run_each, self._delete), chunks_of(writes, STATEMENT_WRITES_MAX)
            elif writes.kind is Put and self._layout.preserves_text and writes.has_only(*_DOCUMENT_PUT):
                apply = partial(self._retry.run_each, self._put)
        return joined_outcomes([await apply(chunk, until) for chunk in chunks])

    # Unconditional writes

    async def _put(self, connection: Connection, puts: Any, progress: Progress) -> Results:
        values, expiries = puts.cells("value"), expiries_ms(puts.cells("ttl_s"), self._spec.ttl_s, self._clock())
        progress.applied, progress.texts = "unknown", [(value,) for value in values]
        etag, count, *keys = await self._put_rows(connection, puts, [expires_ms or None for expires_ms in expiries])
        failed = dict[int, TableError]()
        if count < len(puts):
            written = set(keys[0] if len(keys) == 1 else zip(*keys, strict=True)) if count else ()
            failed = {at: self._ignored() for at, key in enumerate(puts.keys) if key not in written}
        return Results(Written, put_columns(puts, [etag] * len(puts), expiries), failed)

    async def _put_rows(self, connection: Connection, puts: Batch, expiries: Sequence[int | None]) -> Any:
        """Replace records. In a generation that loads they are new, unless a task of the job was repeated."""
        keys, values = self._sql.key_arrays(puts.keys), puts.cells("value")
        if self._spec.loading:
            with suppress(UniqueViolationError):
                return (await connection.fetch(self._sql.load, *keys, values, expiries))[0]
        metadata = [expiries if name == EXPIRES else [None] * len(puts) for name in self._sql.metadata]
        rows = [*keys, values, *metadata, [""] * len(puts)]
        return (await connection.fetch(self._sql.put, *rows, False, *self._time()))[0]

    async def _delete(self, connection: Connection, deletes: Sequence[Any], progress: Progress) -> list[Outcome]:
        progress.applied = "unknown"
        for forget in {each.forget for each in deletes}:
            keys = self._sql.key_arrays([each.key for each in deletes if each.forget == forget])
            await connection.execute(self._sql.unconditional_delete, *keys, forget, *self._time())
        return [Written(None)] * len(deletes)

    def _time(self) -> list[int]:
        return [self._clock()] if self._sql.takes_time else []

    # Compare-and-set

    async def read(self, writes: Sequence[Write], until: float) -> Sequence[VersionedRecord | TableError]:
        """Read the records of writes, except those that are together larger than the limit for one call."""
        return await self._bounded.read(
            [write.key for write in writes],
            lambda keys, budget: self._retry.run_each(partial(self._reader.find, budget), keys, until),
        )

    async def replace(self, replacements: Sequence[Replacement], until: float) -> list[Outcome | bool]:
        """Write the rows that have not changed since they were read."""
        decided, yielder = list[RowWrite | InvalidOperation](), Yielder()
        for replacement in replacements:
            if yielder.due:
                await yielder.maybe_yield()
            decided.append(self._row(replacement))
        rows = [row for row in decided if isinstance(row, RowWrite)]
        outcomes = iter(await self._retry.run_each(self._write_all, rows, until) if rows else [])
        return [next(outcomes) if isinstance(row, RowWrite) else row for row in decided]

    def _row(self, replacement: Replacement) -> RowWrite | InvalidOperation:
        write, found, changed = replacement.write, replacement.found, replacement.changed
        stored, value = found.stored, changed.stored.value if changed.stored else None
        before = stored.value if isinstance(stored, Stored) else None
        is_removed = changed.stored is None or (value is None and self._sql.has_side_table)
        try:
            if isinstance(write, Update):
                self._layout.check_update(write, before)
            absent = self._layout.absent_texts or ()
            texts = absent if value is None else self._layout.column_texts(value, before)
        except InvalidOperation as error:
            return error
        if replacement.version.etag:
            return RowWrite(write, found, changed, texts, "delete" if is_removed else "update")
        return RowWrite(write, found, changed, texts, "none" if is_removed else "insert")

    async def _write_all(
        self, connection: Connection, rows: Sequence[RowWrite], progress: Progress
    ) -> Sequence[Attempt]:
        """Write rows in one transaction. Only one statement needs no BEGIN."""
        outcomes: list[Attempt] = [False] * len(rows)
        sides = dict[Key, SideRow]()
        if self._sql.has_side_table:
            await _begin(connection)
            keys = [row.key for row in rows]
            sides = await self._reader.side_rows(self._sql.side_lock, ReadBudget(math.inf), connection, keys)
        current = [at for at, row in enumerate(rows) if not sides or sides[row.key] == row.version.side]
        chunks: list[tuple[Kind, Sequence[int]]] = []
        for kind in get_args(Kind):
            of_kind = [at for at in current if rows[at].kind == kind]
            limited = chunks_of(of_kind, STATEMENT_WRITES_MAX, STATEMENT_BYTES_MAX, lambda at: rows[at].size_bytes)
            chunks += [(kind, chunk) for chunk in limited]
        if len(chunks) > 1:
            await _begin(connection)
        together = connection.is_in_transaction()
        for kind, chunk in chunks:
            progress.applied = "no" if together else "unknown"
            results = await self._write(kind, [rows[at] for at in chunk], connection, progress)
            for at, result in zip(chunk, results, strict=True):
                outcomes[at] = result
        if sides:
            await self._update_side_rows(connection, sides, rows, outcomes)
        if together:
            progress.applied = "unknown"
            await connection.execute("COMMIT")
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
            deleted = await connection.fetch(self._sql.delete, *keys, [row.version.etag for row in rows])
            gone = {self._sql.key_of(each) for each in deleted}
            return [row.changed.outcome if row.key in gone else False for row in rows]
        statement = self._sql.insert if kind == "insert" else self._sql.update
        written = await self._send(statement, connection, rows, progress)
        if kind == "update" and not written:  # Another transaction is in the way, or a trigger.
            written = await self._send(self._sql.update_or_match, connection, rows, progress)
        return [self._outcome(row, *written[row.key]) if row.key in written else False for row in rows]

    async def _send(
        self, statement: str, connection: Connection, rows: Sequence[RowWrite], progress: Progress
    ) -> dict[Key, tuple[str | None, bytes | None]]:
        """Execute a statement with rows. Return by key the etags, and the values if a write requests one.

        An etag is None if a trigger left the row unchanged. Values are returned only if the columns may not preserve
        their text.
        """
        progress.texts = [row.texts for row in rows]
        stored = [row.changed.stored for row in rows]
        arrays = self._sql.key_arrays([row.key for row in rows])
        arrays += [list(column) for column in zip(*progress.texts, strict=True)]
        if EXPIRES in self._sql.metadata:
            arrays.append([each.expires_ms or None if each else None for each in stored])
        if WRITERS in self._sql.metadata:
            arrays.append([memory_text(each.memory) if each else None for each in stored])
        etags = [row.version.etag for row in rows]
        returns_values = not self._layout.preserves_text and any(getattr(row.write, "returning", False) for row in rows)
        found = await connection.fetch(statement, *arrays, etags, returns_values)
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
        return InvalidOperation(
            f"table {self._spec.name!r}: a trigger or policy of the table left the record unchanged"
        )

    async def _update_side_rows(
        self,
        connection: Connection,
        before: Mapping[Key, SideRow],
        rows: Sequence[RowWrite],
        outcomes: Sequence[Attempt],
    ) -> None:
        """Write the side rows that have changed, and delete those without content."""
        after = dict(before)
        for row, outcome in zip(rows, outcomes, strict=True):
            if isinstance(outcome, Written):
                stored, version = row.changed.stored, int(outcome.etag) if outcome.etag else None
                after[row.key] = SideRow(version, stored.expires_ms, stored.memory) if stored else SideRow()
        if changed := {key: side for key, side in after.items() if side not in (SideRow(), before[key])}:
            versions = [side.version for side in changed.values()]
            expiries = [side.expires_ms or None for side in changed.values()]
            memories = [memory_text(side.memory) for side in changed.values()]
            keys = self._sql.key_arrays([*changed])
            await connection.execute(self._sql.side_update, *keys, versions, expiries, memories)
        if empty := [key for key, side in after.items() if side == SideRow()]:
            await connection.execute(self._sql.side_delete, *self._sql.key_arrays(empty))


async def _begin(connection: Connection) -> None:
    if not connection.is_in_transaction():
        await connection.execute(BEGIN)
