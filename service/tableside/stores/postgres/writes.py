"""Writes: in one statement where nothing must be known of the record, else decided while its row is locked.

The rows of a batch are locked in the order of their keys, read, decided by `transition`, written and committed. For
keys that have no row nothing can be locked: those are inserted afterwards in a statement of their own, in order too,
and where another was faster the write is decided anew. So no transaction waits for a key while it holds a greater one,
and none waits in a circle.

A side table has a row for every key that was written, made or locked in order before anything else: there all that
Tableside writes is kept apart, and what is new is inserted in the same transaction.
"""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import msgspec

from ...core import (
    Changed,
    Clock,
    Delete,
    InvalidOperation,
    Key,
    Outcome,
    Put,
    RecordUnreadable,
    Stored,
    TableSpec,
    Transition,
    Write,
    Written,
    transition,
    with_etag,
)
from .deadline_retry import Sent
from .errors import connection_lost
from .json_text import canonical_or_error
from .pool import Connection
from .rows import (
    Remembered,
    Row,
    answers,
    key_arrays,
    key_of,
    read_writers,
    row_arrays,
    stored,
    with_side,
    writers_text,
)
from .statements import Statements
from .value_columns import ValueForm

BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"


class Step(msgspec.Struct, frozen=True):
    """A record that is decided and to be written: the decision, and the row that it makes."""

    write: Write
    changed: Changed
    row: Row


class Again(msgspec.Struct, frozen=True):
    """Another has made the record meanwhile: decide anew."""


AGAIN = Again()


class _Plan:
    """What the writes of one transaction come to."""

    def __init__(self, count: int) -> None:
        self.outcomes: list[Outcome | Step | Again] = [None] * count
        self.updates: dict[int, Step] = {}
        self.inserts: dict[int, Step] = {}
        self.deletes: list[Key] = []
        self.memory: dict[Key, Stored | None] = {}
        self.made: Collection[Key] = ()

    @property
    def changes_anything(self) -> bool:
        """Whether the transaction does more than to look."""
        return bool(self.updates or self.inserts or self.deletes or self.memory)

    def settle(self, index: int, step: Step, told: Outcome | Again) -> None:
        """Take note of what became of a write."""
        self.outcomes[index] = told
        if isinstance(told, Written) and step.changed.stored is not None:
            self.memory[step.row.key] = msgspec.structs.replace(step.changed.stored, etag=told.etag or "")


class Writes:
    """Does the writes of one table; each method is one piece of work on one connection."""

    def __init__(self, spec: TableSpec, form: ValueForm, statements: Statements, clock: Clock) -> None:
        self._spec = spec
        self._form = form
        self._statements = statements
        self._clock = clock
        self._parts = len(spec.key.fields)

    async def put(self, connection: Connection, puts: Sequence[Put], sent: Sent) -> list[Outcome]:
        """Put without a condition or a token."""
        now = self._clock()
        outcomes: list[Outcome] = [None] * len(puts)
        steps: dict[int, Step] = {}
        for index, put in enumerate(puts):
            decided = self._decided(None, put, now)
            if isinstance(decided, Step):
                steps[index] = decided
            else:
                outcomes[index] = decided
        if steps:
            more = [now] if self._statements.put_takes_time else []
            sent.applied = "unknown"
            found = await self._written(connection, self._statements.put, list(steps.values()), sent, *more)
            for index, step in steps.items():
                outcomes[index] = self._told(step, found)
        return outcomes

    async def remove(self, connection: Connection, deletes: Sequence[Delete], sent: Sent) -> list[Outcome]:
        """Delete without a condition or a token."""
        sent.applied = "unknown"
        await connection.execute(self._statements.remove, *self._keys([delete.key for delete in deletes]))
        return [Written(None)] * len(deletes)

    async def decide(self, connection: Connection, writes: Sequence[Write], sent: Sent) -> list[Outcome | Step | Again]:
        """Lock what is there, decide, write; a Step answers for a record that is still to be inserted."""
        keys = [write.key for write in writes]
        async with _transaction(connection):
            side = await self._side_locked(connection, keys) if self._statements.side_lock else None
            locked = await connection.fetch(self._statements.lock, *self._keys(keys))
            found = {key_of(row, self._parts): stored(row, self._parts) for row in locked}
            plan = self._planned(writes, found, side)
            await self._carry_out(connection, plan, sent)
            if side is not None:
                await self._remember(connection, plan, found)
            sent.applied = "unknown" if plan.changes_anything else "no"
            await connection.execute("COMMIT")
        return plan.outcomes

    async def insert(self, connection: Connection, steps: Sequence[Step], sent: Sent) -> list[Outcome | Again]:
        """Insert what had no row; Again where there is one now."""
        sent.applied = "unknown"
        found = await self._written(connection, self._statements.insert, steps, sent)
        return [self._told(step, found) if step.row.key in found else AGAIN for step in steps]

    # Deciding

    def _planned(
        self,
        writes: Sequence[Write],
        found: Mapping[Key, Stored | RecordUnreadable],
        side: Mapping[Key, Remembered] | None,
    ) -> _Plan:
        now, plan = self._clock(), _Plan(len(writes))
        if side is not None:
            plan.made = [key for key, remembered in side.items() if remembered == Remembered()]
        for index, write in enumerate(writes):
            held: Stored | RecordUnreadable | None = found.get(write.key)
            if side is not None:
                held = with_side(held, side[write.key])
            decided = self._decided(held, write, now)
            if not isinstance(decided, Step):
                plan.outcomes[index] = decided
            elif decided.changed.stored is None or (side is not None and decided.changed.stored.value is None):
                self._plan_removal(plan, index, decided, there=write.key in found)
            elif write.key in found:
                plan.updates[index] = decided
            elif side is not None:
                plan.inserts[index] = decided
            else:
                plan.outcomes[index] = decided
        return plan

    def _plan_removal(self, plan: _Plan, index: int, step: Step, *, there: bool) -> None:
        plan.outcomes[index] = step.changed.outcome
        plan.memory[step.row.key] = step.changed.stored
        if there:
            plan.deletes.append(step.row.key)

    def _decided(self, held: Stored | RecordUnreadable | None, write: Write, now_ms: int) -> Outcome | Step:
        decided: Transition = transition(held, write, self._spec, now_ms=now_ms, etag="")
        if not isinstance(decided, Changed):
            return decided.outcome
        if decided.stored is None:
            return Step(write, decided, Row(write.key, ()))
        before = held.value if isinstance(held, Stored) else None
        try:
            value = decided.stored.value
            texts = (self._form.absent or ()) if value is None else self._form.texts(value, before)
        except InvalidOperation as error:
            return error
        return Step(write, decided, Row(write.key, texts, decided.stored.expires_ms, decided.stored.writers))

    # Carrying out

    async def _carry_out(self, connection: Connection, plan: _Plan, sent: Sent) -> None:
        if plan.deletes:
            await connection.execute(self._statements.delete, *self._keys(plan.deletes))
        updated = await self._written(connection, self._statements.update, list(plan.updates.values()), sent)
        for index, step in plan.updates.items():
            plan.settle(index, step, self._told(step, updated))
        inserted = await self._written(connection, self._statements.insert, list(plan.inserts.values()), sent)
        for index, step in plan.inserts.items():
            plan.settle(index, step, self._told(step, inserted) if step.row.key in inserted else AGAIN)

    async def _written(
        self, connection: Connection, statements: tuple[str, str], steps: Sequence[Step], sent: Sent, *more: Any
    ) -> Mapping[Key, tuple[str, bytes | None]]:
        """Send rows; return etags, and values where they are asked for and may not be what was sent."""
        if not steps:
            return {}
        sent.rows = [step.row for step in steps]
        statement = statements[not self._form.exact and any(_returning(step.write) for step in steps)]
        arrays = row_arrays(sent.rows, self._parts, self._statements.memory)
        return answers(await connection.fetch(statement, *arrays, *more), self._parts)

    def _told(self, step: Step, found: Mapping[Key, tuple[str, bytes | None]]) -> Outcome:
        if step.row.key not in found:
            return InvalidOperation(f"table {self._spec.name!r}: a trigger or policy of it kept the record as it was")
        etag, value = found[step.row.key]
        outcome = with_etag(step.changed, etag).outcome
        if value is None or not isinstance(outcome, Written) or outcome.value is None:
            return outcome
        kept = canonical_or_error(value)
        return outcome if isinstance(kept, RecordUnreadable) else msgspec.structs.replace(outcome, value=kept)

    # The side table

    async def _side_locked(self, connection: Connection, keys: Sequence[Key]) -> dict[Key, Remembered]:
        rows = await connection.fetch(self._statements.side_lock, *self._keys(keys))
        return {key_of(row, self._parts): _remembered(*row[self._parts :]) for row in rows}

    async def _remember(self, connection: Connection, plan: _Plan, there: Collection[Key]) -> None:
        """Keep what each changed record is to be remembered by, and no row for a key that has neither."""
        kept = {key: memory for key, memory in plan.memory.items() if memory is not None}
        if kept:
            rows = [(memory, writers_text(memory.writers)) for memory in kept.values()]
            versions = [None if memory.value is None else int(memory.etag) for memory, _ in rows]
            expiries = [memory.expires_ms or None for memory, _ in rows]
            keys = self._keys(list(kept))
            await connection.execute(
                self._statements.side_update, *keys, versions, expiries, [text for _, text in rows]
            )
        gone = [key for key, memory in plan.memory.items() if memory is None]
        gone += [key for key in plan.made if key not in plan.memory and key not in there]
        if gone:
            await connection.execute(self._statements.side_delete, *self._keys(gone))

    def _keys(self, keys: Sequence[Key]) -> list[list[Any]]:
        return key_arrays(keys, self._parts)


@asynccontextmanager
async def _transaction(connection: Connection) -> AsyncIterator[None]:
    """Undo what is done within if the server refuses it; who leaves it commits first."""
    await connection.execute(BEGIN)
    try:
        yield
    except asyncpg.PostgresError as error:
        if not connection_lost(error):
            await connection.execute("ROLLBACK")
        raise


def _remembered(version: int | None, expires_ms: int | None, writers: str | None) -> Remembered:
    return Remembered(version, expires_ms or 0, read_writers(writers))


def _returning(write: Write) -> bool:
    return not isinstance(write, Delete) and write.returning
