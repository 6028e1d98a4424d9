"""Executes the statements that write rows, once their content is decided."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from ...core import (
    Changed,
    Clock,
    Delete,
    InvalidOperation,
    Key,
    Outcome,
    RecordUnreadable,
    TableSpec,
    Update,
    Write,
    Written,
    with_etag,
)
from .columns import Texts, ValueLayout
from .connections import Connection, Progress
from .reads import FoundRecord, SideRow, Writers, canonical, key_arrays, parse_writers, row_key
from .schema import EXPIRES, WRITERS
from .statements import TableSql

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


class RowWriter:
    """Writes rows of one table, and of its side table. Each method executes statements on one connection."""

    def __init__(self, spec: TableSpec, layout: ValueLayout, sql: TableSql, clock: Clock) -> None:
        self._spec = spec
        self._layout = layout
        self._sql = sql
        self._clock = clock
        self._parts = len(spec.key.fields)

    def row(self, write: Write, changed: Changed, found: FoundRecord) -> RowWrite:
        """Return a decided write as a row. Raise InvalidOperation if the columns cannot store the value."""
        if isinstance(write, Update):
            self._layout.check_update(write, found.value)
        value = None if changed.stored is None else changed.stored.value
        texts = (self._layout.absent_texts or ()) if value is None else self._layout.column_texts(value, found.value)
        return RowWrite(write, changed, found, texts)

    def kind(self, row: RowWrite) -> Kind:
        """Return what a write does to the row of the table."""
        stored = row.changed.stored
        is_removed = stored is None or (stored.value is None and self._sql.has_side_table)
        if not row.found.etag:
            return "none" if is_removed else "insert"
        return "delete" if is_removed else "update"

    async def put(self, connection: Connection, rows: Sequence[RowWrite], progress: Progress) -> list[Outcome]:
        """Put rows, whatever they contain."""
        progress.applied = "unknown"
        now = [self._clock()] if self._sql.put_takes_time else []
        written = await self._send(self._sql.put, connection, rows, progress, *now)
        return [self._outcome(row, *written.get(row.key, (None, None))) for row in rows]

    async def delete(self, connection: Connection, deletes: Sequence[Delete], progress: Progress) -> list[Outcome]:
        """Delete records, whatever they contain."""
        progress.applied = "unknown"
        await connection.execute(self._sql.unconditional_delete, *self._key_arrays([each.key for each in deletes]))
        return [Written(None)] * len(deletes)

    async def write(
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
        if kind == "update" and not written:  # Another transaction is in the way, or a trigger.
            written = await self._send(self._sql.update_or_match, connection, rows, progress)
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
        stored = [row.changed.stored for row in rows]
        if EXPIRES in self._sql.metadata:
            arrays.append([each.expires_ms or None if each else None for each in stored])
        if WRITERS in self._sql.metadata:
            arrays.append([_writers_text(each.writers) if each else None for each in stored])
        return [*arrays, [row.found.etag for row in rows]]

    async def lock_side_rows(self, connection: Connection, keys: Sequence[Key]) -> dict[Key, SideRow]:
        """Return the rows of the side table, locked until the transaction ends. Create those of new keys."""
        locked = await connection.fetch(self._sql.side_lock, *self._key_arrays(keys))
        sides = {}
        for row in locked:
            version, expires_ms, writers = row[self._parts :]
            sides[row_key(row, self._parts)] = SideRow(version, expires_ms or 0, parse_writers(writers))
        return sides

    async def update_side_rows(
        self, connection: Connection, before: Mapping[Key, SideRow], after: Mapping[Key, SideRow]
    ) -> None:
        """Write the side rows that have changed, and delete those without content."""
        if changed := {key: side for key, side in after.items() if side not in (SideRow(), before[key])}:
            versions = [side.version for side in changed.values()]
            expiries = [side.expires_ms or None for side in changed.values()]
            writers = [_writers_text(side.writers) for side in changed.values()]
            await connection.execute(self._sql.side_update, *self._key_arrays([*changed]), versions, expiries, writers)
        if empty := [key for key, side in after.items() if side == SideRow()]:
            await connection.execute(self._sql.side_delete, *self._key_arrays(empty))


def _writers_text(writers: Writers) -> str | None:
    """Return the text that is stored for writers, or None if there are none."""
    return msgspec.json.encode(writers).decode() if writers else None


def _returns_value(write: Write) -> bool:
    return not isinstance(write, Delete) and write.returning
