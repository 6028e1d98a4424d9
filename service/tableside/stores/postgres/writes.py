"""Writes records: unconditional writes in one statement, a single other write in two, and several in a transaction.

A single write reads its record, decides, and replaces the row if its etag is still the same. If another writer has
changed or locked the row, the write takes a transaction.

The transaction locks the rows of a batch in key order, reads them, decides each write, writes, and commits. A key
without a row cannot be locked. Such records are inserted afterwards by a separate statement, also in key order. If
another writer inserts the record first, the write is decided again. No transaction waits for a key while it locks a
greater one, so deadlocks cannot occur.

With a side table, every key to write first gets a row there, created or locked in key order. These rows serialize all
of Tableside's writes, so new records are inserted in the same transaction.
"""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import msgspec

from ...core import (
    INTEGER_MAX,
    NOT_READ,
    Changed,
    Clock,
    Delete,
    InvalidOperation,
    Key,
    Outcome,
    Put,
    ReadBudget,
    RecordUnreadable,
    Stored,
    TableSpec,
    Update,
    Write,
    Written,
    Yielder,
    transition,
    with_etag,
)
from .deadline_retry import Progress
from .errors import is_connection_error
from .json_text import convert
from .rows import (
    Row,
    SideRow,
    etags_and_values,
    format_writers,
    key_arrays,
    locked_bytes,
    row_arrays,
    row_key,
    side_row,
    stored_record,
    stored_records,
    with_side_row,
)
from .session import BEGIN, Connection
from .statements import Statements
from .transaction_plan import CONFLICT, Conflict, DecidedWrite, TransactionPlan
from .value_columns import ValueLayout


class RecordWriter:
    """Executes the writes of one table. Each method runs on one connection."""

    def __init__(self, spec: TableSpec, layout: ValueLayout, statements: Statements, clock: Clock) -> None:
        self._spec = spec
        self._layout = layout
        self._statements = statements
        self._clock = clock
        self._parts = len(spec.key.fields)

    async def put(self, connection: Connection, puts: Sequence[Put], progress: Progress) -> list[Outcome]:
        """Put records without a condition or a token."""
        now = self._clock()
        outcomes: list[Outcome] = [None] * len(puts)
        decisions: dict[int, DecidedWrite] = {}
        yielder = Yielder()
        for index, put in enumerate(puts):
            decided = await self._decide(None, put, now)
            if isinstance(decided, DecidedWrite):
                decisions[index] = decided
            else:
                outcomes[index] = decided
            await yielder.maybe_yield()
        if decisions:
            time = [now] if self._statements.put_takes_time else []
            progress.applied = "unknown"
            found = await self._send_rows(connection, self._statements.put, list(decisions.values()), progress, *time)
            for index, decision in decisions.items():
                outcomes[index] = await self._outcome(decision, found)
                await yielder.maybe_yield()
        return outcomes

    async def delete(self, connection: Connection, deletes: Sequence[Delete], progress: Progress) -> list[Outcome]:
        """Delete records without a condition or a token."""
        progress.applied = "unknown"
        await connection.execute(
            self._statements.unconditional_delete, *self._key_arrays([delete.key for delete in deletes])
        )
        return [Written(None)] * len(deletes)

    async def replace(
        self, connection: Connection, writes: Sequence[Put | Update], progress: Progress
    ) -> list[Outcome | Conflict]:
        """Read one record, decide its write, and replace the row if it is unchanged. Return CONFLICT if it is not."""
        [write] = writes
        rows = await connection.fetch(self._statements.look, *self._key_arrays([write.key]), INTEGER_MAX)
        stored = await stored_record(rows[0], self._parts) if rows else None
        statements, etag = (self._statements.replace, [rows[0]["etag"]]) if rows else (self._statements.insert, [])
        del rows  # Their value may be large, and the driver is about to copy the new one.
        decided = await self._decide(stored, write, self._clock())
        if not isinstance(decided, DecidedWrite):
            return [decided]
        del stored
        progress.applied = "unknown"
        found = await self._send_rows(connection, statements, [decided], progress, *etag)
        return [await self._outcome(decided, found) if found else CONFLICT]

    async def lock_and_write(
        self, budget: ReadBudget, connection: Connection, writes: Sequence[Write], progress: Progress
    ) -> list[Outcome | DecidedWrite | Conflict]:
        """Lock the existing rows, decide, and write. A DecidedWrite in the result must still be inserted.

        If the records are together larger than the budget, change nothing, and return NOT_READ for every write.
        """
        keys = [write.key for write in writes]
        bytes_max = int(min(budget.left_bytes, INTEGER_MAX))
        async with _transaction(connection):
            side = await self._lock_side_rows(connection, keys) if self._statements.side_lock else None
            locked = await connection.fetch(self._statements.lock, *self._key_arrays(keys), bytes_max)
            size_bytes = locked_bytes(locked)
            budget.spend(size_bytes)
            if size_bytes > bytes_max:
                await connection.execute("ROLLBACK")
                return [NOT_READ] * len(writes)
            existing, plan = await self._make_plan(writes, locked, side)
            await self._execute(connection, plan, progress)
            if side is not None:
                await self._update_side_rows(connection, plan, existing)
            progress.applied = "unknown" if plan.changes_anything else "no"
            await connection.execute("COMMIT")
        return plan.outcomes

    async def insert(
        self, connection: Connection, decisions: Sequence[DecidedWrite], progress: Progress
    ) -> list[Outcome | Conflict]:
        """Insert records that had no row. Return CONFLICT for records that have a row now."""
        progress.applied = "unknown"
        found = await self._send_rows(connection, self._statements.insert, decisions, progress)
        return [
            await self._outcome(decision, found) if decision.row.key in found else CONFLICT for decision in decisions
        ]

    # Deciding

    async def _make_plan(
        self, writes: Sequence[Write], locked: list[Any], side: Mapping[Key, SideRow] | None
    ) -> tuple[Collection[Key], TransactionPlan]:
        """Return the keys of the `locked` rows, and the plan. The rows and their records are freed."""
        now, plan, found = self._clock(), TransactionPlan(len(writes)), await stored_records(locked, self._parts)
        if side is not None:
            plan.created_keys = [key for key, row in side.items() if row == SideRow()]
        yielder = Yielder()  # The transaction ends at the deadline while other tasks run.
        for index, write in enumerate(writes):
            if yielder.due:
                await yielder.maybe_yield()
            stored: Stored | RecordUnreadable | None = found.get(write.key)
            if side is not None:
                stored = with_side_row(stored, side[write.key])
            decided = await self._decide(stored, write, now)
            if not isinstance(decided, DecidedWrite):
                plan.outcomes[index] = decided
            elif decided.changed.stored is None or (side is not None and decided.changed.stored.value is None):
                self._plan_delete(plan, index, decided, exists=write.key in found)
            elif write.key in found:
                plan.updates[index] = decided
            elif side is not None:
                plan.inserts[index] = decided
            else:
                plan.outcomes[index] = decided
        return set(found), plan

    def _plan_delete(self, plan: TransactionPlan, index: int, decision: DecidedWrite, *, exists: bool) -> None:
        plan.outcomes[index] = decision.changed.outcome
        plan.side_rows[decision.row.key] = decision.changed.stored
        if exists:
            plan.deletes.append(decision.row.key)

    async def _decide(
        self, stored: Stored | RecordUnreadable | None, write: Write, now_ms: int
    ) -> Outcome | DecidedWrite:
        decided = transition(stored, write, self._spec, now_ms=now_ms, etag="")
        if not isinstance(decided, Changed):
            return decided.outcome
        if decided.stored is None:
            return DecidedWrite(write, decided, Row(write.key, ()))
        before = stored.value if isinstance(stored, Stored) else None
        try:
            if isinstance(write, Update):
                self._layout.check_update(write, before)
            value = decided.stored.value
            texts = (self._layout.absent_texts or ()) if value is None else self._layout.column_texts(value, before)
        except InvalidOperation as error:
            return error
        return DecidedWrite(write, decided, Row(write.key, texts, decided.stored.expires_ms, decided.stored.writers))

    # Executing

    async def _execute(self, connection: Connection, plan: TransactionPlan, progress: Progress) -> None:
        if plan.deletes:
            await connection.execute(self._statements.delete, *self._key_arrays(plan.deletes))
        updated = await self._send_rows(connection, self._statements.update, list(plan.updates.values()), progress)
        for index, decision in plan.updates.items():
            plan.set_outcome(index, decision, await self._outcome(decision, updated))
        inserted = await self._send_rows(connection, self._statements.insert, list(plan.inserts.values()), progress)
        for index, decision in plan.inserts.items():
            plan.set_outcome(
                index, decision, await self._outcome(decision, inserted) if decision.row.key in inserted else CONFLICT
            )

    async def _send_rows(
        self,
        connection: Connection,
        statements: tuple[str, str],
        decisions: Sequence[DecidedWrite],
        progress: Progress,
        *more: int | str,
    ) -> Mapping[Key, tuple[str, bytes | None]]:
        """Execute a statement with rows, and with the parameters `more` after them.

        Return the etags by key, and the values if a write requests them and the columns may not preserve the text.
        """
        if not decisions:
            return {}
        progress.rows = [decision.row for decision in decisions]
        statement = statements[
            not self._layout.preserves_text and any(_returns_value(decision.write) for decision in decisions)
        ]
        arrays = row_arrays(progress.rows, self._parts, self._statements.metadata)
        return etags_and_values(await connection.fetch(statement, *arrays, *more), self._parts)

    async def _outcome(self, decision: DecidedWrite, found: Mapping[Key, tuple[str, bytes | None]]) -> Outcome:
        if decision.row.key not in found:
            return InvalidOperation(
                f"table {self._spec.name!r}: a trigger or policy of the table left the record unchanged"
            )
        etag, value = found[decision.row.key]
        outcome = with_etag(decision.changed, etag).outcome
        if value is None or not isinstance(outcome, Written) or outcome.value is None:
            return outcome
        text = await convert(value)
        return outcome if isinstance(text, RecordUnreadable) else msgspec.structs.replace(outcome, value=text)

    # The side table

    async def _lock_side_rows(self, connection: Connection, keys: Sequence[Key]) -> dict[Key, SideRow]:
        rows = await connection.fetch(self._statements.side_lock, *self._key_arrays(keys))
        return {row_key(row, self._parts): side_row(row, self._parts) for row in rows}

    async def _update_side_rows(self, connection: Connection, plan: TransactionPlan, existing: Collection[Key]) -> None:
        """Write the metadata of changed records, and delete the rows of keys without record and metadata."""
        written = {key: stored for key, stored in plan.side_rows.items() if stored is not None}
        if written:
            rows = [(stored, format_writers(stored.writers)) for stored in written.values()]
            versions = [None if stored.value is None else int(stored.etag) for stored, _ in rows]
            expiries = [stored.expires_ms or None for stored, _ in rows]
            keys = self._key_arrays(list(written))
            await connection.execute(
                self._statements.side_update, *keys, versions, expiries, [text for _, text in rows]
            )
        removed = [key for key, stored in plan.side_rows.items() if stored is None]
        removed += [key for key in plan.created_keys if key not in plan.side_rows and key not in existing]
        if removed:
            await connection.execute(self._statements.side_delete, *self._key_arrays(removed))

    def _key_arrays(self, keys: Sequence[Key]) -> list[list[Any]]:
        return key_arrays(keys, self._parts)


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


def _returns_value(write: Write) -> bool:
    return not isinstance(write, Delete) and write.returning
