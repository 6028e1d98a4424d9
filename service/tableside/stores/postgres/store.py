"""The store of one PostgreSQL table: chooses the statements for operations, and reports the table's capabilities."""

import math
import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import asyncpg

from ...core import (
    NO_EXPIRY,
    UPDATE_BYTES_MAX,
    BoundedReads,
    Capabilities,
    Clock,
    Contended,
    Delete,
    Get,
    InvalidOperation,
    Key,
    Operation,
    Outcome,
    Page,
    Put,
    ReadBudget,
    RecordUnreadable,
    Scan,
    TableError,
    TableSpec,
    Unsupported,
    Write,
    WriteHealth,
    Yielder,
    chunks_of,
    is_unconditional,
)
from .column_types import UNCHANGED, limits_texts, to_text
from .deadline_retry import DeadlineRetry, Progress, Work
from .errors import DRIVER_ERRORS, is_input_error, rejected_row_error
from .pool import Pool
from .reads import RecordReader
from .rows import Row
from .scans import Scanner
from .schema import EXPIRES, WRITERS, TableDefinition
from .session import Connection
from .statements import StatementBuilder, input_sql
from .transaction_plan import Conflict, DecidedWrite
from .value_columns import ValueLayout
from .writes import RecordWriter

STATEMENT_WRITES_MAX = 1000
STATEMENT_BYTES_MAX = 2 * 2**20
"""Limits the total size of the values that one statement writes. Encoding 8 MiB would take up to 25 ms."""

ROUNDS_MAX = 16
"""How often a write is decided because another writer inserted or deleted its record in the meantime."""

SWEEP_ROWS_MAX = 1000
SWEEP_STATEMENTS_MAX = 10
SWEEP_MAX_S = 60.0
"""The deadline of a sweep, which has no caller whose deadline could end it."""

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class PostgresStore:
    """Stores the records of one table, as long as the table has the definition `table`."""

    def __init__(
        self,
        pool: Pool,
        spec: TableSpec,
        table: TableDefinition,
        layout: ValueLayout,
        health: WriteHealth,
        clock: Clock,
    ) -> None:
        builder = StatementBuilder(table, layout.sql)
        self.spec = spec
        self.capabilities = _capabilities(table, layout)
        self.table = table
        self.has_typed_columns = not layout.preserves_text
        self._health = health
        self._layout = layout
        self._clock = clock
        self._statements = builder.statements()
        self._retry = DeadlineRetry(pool, spec.name, self._explain_rejection)
        self._reader = RecordReader(self._retry, self._statements.read, len(spec.key.fields), clock)
        self._writer = RecordWriter(spec, layout, self._statements, clock)
        self._bounded = BoundedReads(UPDATE_BYTES_MAX)
        self._writing: Counter[Key] = Counter()
        self._scanner = Scanner(table, spec.key, builder, self._statements)
        self._uuids = [index for index, column in enumerate(table.key_columns) if column.type == "uuid"]
        self._limited_keys = [(index, column) for index, column in enumerate(table.key_columns) if limits_texts(column)]
        if spec.ttl_s is not None and not self.capabilities.ttl:
            raise Unsupported(_NO_TTL)

    async def apply(self, operations: Sequence[Operation], until: float = math.inf) -> Sequence[Outcome]:
        """Apply operations. Operations of one kind share statements of bounded size."""
        if not self._uuids and set(map(type, operations)) == {Get}:
            return await self._reader.get(cast("Sequence[Get]", operations), until)
        outcomes: list[Outcome] = [None] * len(operations)
        kinds: dict[Callable[..., Any], list[int]] = {}
        yielder = Yielder()
        for index, operation in enumerate(operations):
            outcomes[index] = self._unsupported(operation)
            if outcomes[index] is None:
                kinds.setdefault(self._kind(operation), []).append(index)
            if yielder.due:
                await yielder.maybe_yield()
        for do, indices in kinds.items():
            for index, outcome in zip(indices, await do([operations[at] for at in indices], until), strict=True):
                outcomes[index] = outcome
        self._health.observe(outcomes)
        return outcomes

    async def scan(self, scan: Scan) -> Page:
        """Read a page in key order."""
        page: Page = await self._run(lambda connection: self._scanner.page(connection, scan, self._clock()))
        return page

    async def splits(self, count_max: int) -> list[bytes]:
        """Split the table into key ranges with similar numbers of records."""
        boundaries = await self._run(lambda connection: self._scanner.boundaries(connection, count_max))
        return self._scanner.splits(boundaries)

    async def sweep(self) -> None:
        """Delete some expired records. Raise a TableError if that fails or exceeds SWEEP_MAX_S."""
        if not self.capabilities.ttl:
            return
        until = time.monotonic() + SWEEP_MAX_S
        for _ in range(SWEEP_STATEMENTS_MAX):
            done = await self._run(
                lambda connection: connection.execute(self._statements.sweep, self._clock(), SWEEP_ROWS_MAX), until
            )
            if int(done.rpartition(" ")[2]) < SWEEP_ROWS_MAX:
                return

    def _kind(self, operation: Operation) -> Callable[..., Any]:
        if isinstance(operation, Get):
            return self._reader.get
        if operation.token is None and is_unconditional(operation) and not self.table.has_side_table:
            if isinstance(operation, Put) and self._layout.preserves_text:
                return self._put
            if isinstance(operation, Delete):
                return self._delete
        return self._decide

    # Each kind

    async def _put(self, puts: Sequence[Put], until: float) -> list[Outcome]:
        return await self._run_in_chunks(self._writer.put, puts, until)

    async def _delete(self, deletes: Sequence[Delete], until: float) -> list[Outcome]:
        return await self._run_in_chunks(self._writer.delete, deletes, until)

    async def _run_in_chunks(self, work: Work[Any, Outcome], items: Sequence[Any], until: float) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for chunk in chunks_of(items, STATEMENT_WRITES_MAX, STATEMENT_BYTES_MAX, _size_bytes):
            outcomes += await self._retry.run_each(work, chunk, until)
        return outcomes

    async def _decide(self, writes: Sequence[Write], until: float) -> list[Outcome]:
        if len(writes) == 1 and not self.table.has_side_table:
            return [await self._decide_one(writes[0], until)]
        outcomes: list[Outcome] = []
        for chunk in chunks_of(writes, STATEMENT_WRITES_MAX, STATEMENT_BYTES_MAX, _size_bytes):
            outcomes += await self._decide_in_rounds(chunk, until)
        return outcomes

    async def _decide_one(self, write: Write, until: float) -> Outcome:
        """Write a record. This needs a transaction only if other writers change the record at the same time."""
        is_alone = write.key not in self._writing
        self._writing[write.key] += 1
        try:
            if is_alone and not isinstance(write, Delete):
                [outcome] = await self._retry.run_each(self._writer.replace, [write], until)
                if not isinstance(outcome, Conflict):
                    return outcome
            [final] = await self._decide_in_rounds([write], until)
            return final
        finally:
            self._writing[write.key] -= 1
            if not self._writing[write.key]:
                del self._writing[write.key]

    async def _decide_in_rounds(self, writes: Sequence[Write], until: float) -> list[Outcome]:
        """Decide and write. Repeat the writes that conflict with other writers."""
        outcomes: list[Outcome] = [None] * len(writes)
        waiting = list(range(len(writes)))
        for attempt in range(ROUNDS_MAX):
            results = await self._round([writes[index] for index in waiting], until)
            conflicts = []
            for index, result in zip(waiting, results, strict=True):
                if isinstance(result, Conflict):
                    conflicts.append(index)
                else:
                    outcomes[index] = result
            waiting = conflicts
            if not waiting:
                return outcomes
            try:
                await self._retry.pause(attempt, until)
            except TableError as error:
                return _fill(outcomes, waiting, error)
        return _fill(outcomes, waiting, Contended(f"other writers changed the record in each of {ROUNDS_MAX} attempts"))

    async def _round(self, writes: Sequence[Write], until: float) -> list[Outcome | Conflict]:
        decided = await self._bounded.read(writes, partial(self._lock_and_write, until))
        to_insert = {index: result for index, result in enumerate(decided) if isinstance(result, DecidedWrite)}
        inserted = await self._retry.run_each(self._writer.insert, list(to_insert.values()), until) if to_insert else []
        final = dict(zip(to_insert, inserted, strict=True))
        return [final[index] if isinstance(result, DecidedWrite) else result for index, result in enumerate(decided)]

    async def _lock_and_write(
        self, until: float, writes: Sequence[Write], budget: ReadBudget
    ) -> list[Outcome | DecidedWrite | Conflict]:
        return [*await self._retry.run_each(partial(self._writer.lock_and_write, budget), writes, until)]

    # Rejected operations

    def _unsupported(self, operation: Operation) -> TableError | None:
        """Return the error of an operation that the table does not support, or None."""
        if self._uuids and not self._uuids_valid(operation.key):
            return InvalidOperation("a key of this table is a UUID in lower case with hyphens")
        if isinstance(operation, Get):
            return None
        if self._limited_keys and (fault := self._key_fault(operation.key)) is not None:
            return fault
        if operation.token is not None and not self.capabilities.tokens:
            return Unsupported(_NO_TOKENS)
        if not self.capabilities.ttl and not isinstance(operation, Delete) and operation.ttl_s not in (None, NO_EXPIRY):
            return Unsupported(_NO_TTL)
        return None

    def _uuids_valid(self, key: Key) -> bool:
        parts = key if isinstance(key, tuple) else (key,)
        return all(_UUID.fullmatch(str(parts[index])) for index in self._uuids)

    def _key_fault(self, key: Key) -> InvalidOperation | None:
        """Return the error of a key that its columns cannot store, or would store as another key."""
        parts = key if isinstance(key, tuple) else (key,)
        try:
            for index, column in self._limited_keys:
                to_text(column, parts[index])
        except InvalidOperation as error:
            return error
        return None

    async def _explain_rejection(self, error: asyncpg.PostgresError, rows: Sequence[Any], until: float) -> TableError:
        """Return the error for one row that the server rejected. It names the column whose type rejects its text.

        If no row was sent, the error concerns the stored record.
        """
        code = error.sqlstate or ""
        if not rows and code.startswith("22"):
            return RecordUnreadable(f"PostgreSQL cannot convert the record to JSON (SQLSTATE {code})")
        for row in rows if is_input_error(error) else ():
            name = await self._rejected_column(row, until)
            if name is not None:
                return InvalidOperation(f"{name}: PostgreSQL rejects the member (SQLSTATE {code})")
        return rejected_row_error(error, self.spec.name)

    async def _rejected_column(self, row: Row, until: float) -> str | None:
        """Return the name and type of the column whose input function rejects its text, or None."""

        async def probe(connection: Connection, texts: Sequence[bytes | None], progress: Progress) -> list[str | None]:
            for column, text in zip(self._layout.sql.data, texts, strict=False):
                if text is None or text == UNCHANGED:
                    continue
                try:
                    await connection.execute(input_sql(column.full_type), text.decode())
                except asyncpg.PostgresError as error:
                    if not is_input_error(error):
                        raise
                    return [f"column {column.name!r} of type {column.full_type}"]
            return [None]

        try:
            return (await self._retry.run_together(probe, row.texts, until))[0]
        except (TableError, *DRIVER_ERRORS):
            return None

    async def _run(self, query: Callable[[Connection], Any], until: float = math.inf) -> Any:
        async def work(connection: Connection, items: Sequence[None], progress: Progress) -> list[Any]:
            return [await query(connection)]

        [result] = await self._retry.run_each(work, [None], until)
        if isinstance(result, TableError):
            raise result
        return result


_NO_TOKENS = f"tokens: the table has neither a column {WRITERS} nor a side table to store them"
_NO_TTL = f"ttl: the table has neither a column {EXPIRES} nor a side table to store when a record expires"


def _capabilities(table: TableDefinition, layout: ValueLayout) -> Capabilities:
    if table.has_side_table:
        return Capabilities(any_value=False)
    ttl = EXPIRES in table.names and layout.preserves_text
    return Capabilities(
        ttl=ttl, tokens=ttl and WRITERS in table.names and layout.absent_texts is not None, any_value=False
    )


def _size_bytes(item: object) -> int:
    return len(item.value) if isinstance(item, Put) else 0


def _fill(outcomes: list[Outcome], indices: Sequence[int], outcome: Outcome) -> list[Outcome]:
    for index in indices:
        outcomes[index] = outcome
    return outcomes
