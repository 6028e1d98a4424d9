"""The store of one PostgreSQL table: applies operations, and follows changes of the table's columns.

If a statement no longer fits the table, PostgreSQL rejects it, and nothing was applied. An operation whose value does
not fit the columns that the store knows was not sent. The store then reads the table's definition again, and repeats
the operation once if the definition has changed.
"""

import asyncio
import contextlib
import logging
import math
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

import asyncpg
import msgspec

from ...core import (
    NO_DEADLINE,
    NO_EXPIRY,
    Batch,
    Budget,
    Capabilities,
    Clock,
    DeadlineExceeded,
    Delete,
    Estimate,
    Get,
    InvalidOperation,
    Operation,
    Outcome,
    Page,
    RecordUnreadable,
    Scan,
    TableError,
    TableNotFound,
    TableSpec,
    Unsupported,
    WriteHealth,
    Yielder,
    apply_by_kind,
    is_remembered,
)
from .columns import UNCHANGED, DocumentLayout, ValueLayout, to_text
from .connections import Connection, DeadlineRetry, Pool, Progress, Texts
from .errors import DRIVER_ERRORS, ColumnMismatch, SchemaChanged, is_input_error, rejected_row_error
from .reads import RecordReader
from .scans import Scanner
from .schema import ESTIMATE, EXPIRES, WRITERS, Column, TableDefinition
from .statements import TableSql
from .writes import RecordWriter

log = logging.getLogger(__name__)

SWEEP_ROWS_MAX = 1000
SWEEP_STATEMENTS_MAX = 10
SWEEP_MAX_S = 60.0
"""The deadline of a sweep, which has no caller whose deadline could end it."""

DROP_ROWS_MAX = 10_000
"""How many rows one statement deletes from a table that cannot be dropped."""

Result = TypeVar("Result")

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_MAY_HAVE_CHANGED = {SchemaChanged, TableNotFound, ColumnMismatch}
_NO_TOKENS = f"tokens and orders: the table has neither a column {WRITERS} nor a side table to store them"
_NO_TTL = f"ttl: the table has neither a column {EXPIRES} nor a side table to store when a record expires"


class PostgresStore:
    """The store of one table. It replaces its DefinedTable when the table has changed, for example by a migration."""

    def __init__(
        self, table: "DefinedTable", open_again: Callable[[], Awaitable["DefinedTable"]], health: WriteHealth
    ) -> None:
        self._table, self.spec, self.capabilities = table, table.spec, table.capabilities
        self._open_again = open_again
        self._health = health

    async def apply(self, operations: Sequence[Operation], budget: Budget = NO_DEADLINE) -> Sequence[Outcome]:
        """Apply operations. Repeat those that failed because the table has changed."""
        used = self._table
        outcomes = await used.apply(operations, budget.until)
        if not _MAY_HAVE_CHANGED.isdisjoint(map(type, outcomes)):
            failed = [index for index, outcome in enumerate(outcomes) if type(outcome) in _MAY_HAVE_CHANGED]
            outcomes = [*outcomes]
            try:
                if await self._reload(used, budget.until):
                    again = await self._table.apply([operations[index] for index in failed], budget.until)
                    for index, outcome in zip(failed, again, strict=True):
                        outcomes[index] = outcome
            except TableError as error:
                failure = error.with_traceback(None)  # Its frames have the operations, and refer to this error.
                outcomes = [failure if type(outcome) is SchemaChanged else outcome for outcome in outcomes]
        self._health.observe(outcomes)
        return outcomes

    async def scan(self, scan: Scan) -> Page:
        """Read a page in key order."""
        return await self._run(lambda table, connection: table.scanner.page(connection, scan))

    async def splits(self, count_max: int) -> list[bytes]:
        """Split the table into key ranges with similar numbers of records."""
        return await self._run(lambda table, connection: table.scanner.splits(connection, count_max))

    async def sweep(self) -> None:
        """Delete some expired records. Raise a TableError if that fails or exceeds SWEEP_MAX_S."""
        until = time.monotonic() + SWEEP_MAX_S
        for _ in range(SWEEP_STATEMENTS_MAX if self.capabilities.ttl else 0):
            if await self._run(DefinedTable.sweep, until) < SWEEP_ROWS_MAX:
                return

    async def drop(self) -> None:
        """Drop the table. One that another role owns, or that a view needs, is emptied in bounded statements."""
        with contextlib.suppress(TableNotFound):
            try:
                await self._run(lambda table, connection: connection.execute(table.definition.drop_ddl()))
            except Unsupported as error:
                log.info("table %s is emptied, not dropped: %s", self._table.definition.in_sql, error.detail)
                while await self._run(DefinedTable.delete_some):
                    pass

    async def estimate(self) -> Estimate:
        """Return PostgreSQL's own estimate of the rows, and the size of the table and its indexes."""
        found = await self._run(lambda table, connection: connection.fetchrow(ESTIMATE, table.definition.in_sql))
        return Estimate() if found is None else Estimate(*found)

    async def _run(
        self, query: Callable[["DefinedTable", Connection], Awaitable[Result]], until: float = math.inf
    ) -> Result:
        used = self._table
        try:
            return await used.run(query, until)
        except (SchemaChanged, TableNotFound):
            if not await self._reload(used, until):
                raise
        return await self._table.run(query, until)

    async def _reload(self, used: "DefinedTable", until: float) -> bool:
        """Read the definition again. Return whether it differs from the one used."""
        try:
            async with asyncio.timeout_at(until if until < math.inf else None):
                current = await self._open_again()
        except TimeoutError:
            raise DeadlineExceeded(f"table {self.spec.name!r}: the deadline was exceeded") from None
        if current.spec.key != used.spec.key:
            raise Unsupported("the key of the table has changed: restart the service")
        self._table, self.spec, self.capabilities = current, current.spec, current.capabilities
        return current.definition != used.definition


class DefinedTable:
    """A table as long as it has the definition `definition`: its statements and columns never change.

    Raise Unsupported if the definition does not fit the spec.
    """

    def __init__(
        self, pool: Pool, spec: TableSpec, definition: TableDefinition, layout: ValueLayout, clock: Clock
    ) -> None:
        self.definition = definition
        self.spec = msgspec.structs.replace(spec, key=definition.key_schema(spec))
        side, names = definition.has_side_table, definition.names
        ttl = side or (EXPIRES in names and layout.preserves_text)
        tokens = side or (ttl and WRITERS in names and layout.absent_texts is not None)
        documents = isinstance(layout, DocumentLayout)
        self.capabilities = Capabilities(ttl=ttl, tokens=tokens, any_value=False, generations=documents)
        if spec.ttl_s is not None and not ttl:
            raise Unsupported(_NO_TTL)
        self._sql = TableSql(definition, layout, spec.delete_memory_s if tokens else None)
        self.scanner = Scanner(self.spec.key, self._sql, clock)
        self._clock = clock
        self._retry = DeadlineRetry(pool, spec.name, self._explain_rejection)
        self._reader = RecordReader(self._retry, self._sql, clock)
        self._writer = RecordWriter(self.spec, self._sql, self._retry, self._reader, clock)
        keys = [*enumerate(definition.key_columns)]
        self._uuids = [index for index, column in keys if column.type == "uuid"]
        # Columns with a length, or with fewer than 64 bits, cannot store every key.
        self._limited_keys = [(at, key) for at, key in keys if key.modifier is not None or key.type in ("int2", "int4")]
        self._supports_all = ttl and tokens and not self._limited_keys

    async def apply(self, operations: Sequence[Operation], until: float) -> Sequence[Outcome]:
        """Apply operations. Operations of one kind share statements of bounded size."""
        return await apply_by_kind(operations, partial(self._apply_batch, until=until))

    async def _apply_batch(self, batch: Batch, until: float) -> Sequence[Outcome]:
        apply = self._reader.get if batch.kind is Get else self._writer.apply
        if not self._uuids and (batch.kind is Get or self._supports_all):
            return await apply(batch, until)
        errors, yielder = list[TableError | None](), Yielder()
        for operation in batch:
            errors.append(self._unsupported(operation))
            if yielder.due:
                await yielder.maybe_yield()
        if not any(errors):
            return await apply(batch, until)
        positions = [at for at, error in enumerate(errors) if error is None]
        outcomes = iter(await apply(batch.at(positions), until) if positions else [])
        return [next(outcomes) if error is None else error for error in errors]

    async def run(self, query: Callable[["DefinedTable", Connection], Awaitable[Result]], until: float) -> Result:
        """Return the result of a query of the table. Raise a TableError if it fails."""

        async def work(connection: Connection, items: Sequence[None], progress: Progress) -> list[Result]:
            return [await query(self, connection)]

        [result] = await self._retry.run_each(work, [None], until)
        if not isinstance(result, TableError):
            return result
        try:
            raise result
        finally:
            del result  # Its traceback refers to this frame. The cycle would keep a dropped table alive.

    async def sweep(self, connection: Connection) -> int:
        """Delete at most SWEEP_ROWS_MAX expired records. Return how many."""
        return await _count(connection, self._sql.sweep, self._clock(), SWEEP_ROWS_MAX) if self.capabilities.ttl else 0

    async def delete_some(self, connection: Connection) -> int:
        """Delete at most DROP_ROWS_MAX rows. Return how many."""
        return await _count(connection, self._sql.delete_some, DROP_ROWS_MAX)

    # Rejected operations

    def _unsupported(self, operation: Operation) -> TableError | None:
        parts = operation.key if isinstance(operation.key, tuple) else (operation.key,)
        if not all(_UUID.fullmatch(str(parts[index])) for index in self._uuids):
            return InvalidOperation("a key of this table is a UUID in lower case with hyphens")
        if isinstance(operation, Get):
            return None
        try:
            for index, column in self._limited_keys:
                to_text(column, parts[index])
        except InvalidOperation as error:  # the column cannot store the key, or would store it as another one
            return error
        if is_remembered(operation) and not self.capabilities.tokens:
            return Unsupported(_NO_TOKENS)
        if not self.capabilities.ttl and not isinstance(operation, Delete) and operation.ttl_s not in (None, NO_EXPIRY):
            return Unsupported(_NO_TTL)
        return None

    async def _explain_rejection(self, error: asyncpg.PostgresError, rows: Sequence[Texts], until: float) -> TableError:
        """Return the error for one row that the server rejected. It names the column whose type rejects its text.

        If no row was sent, the error concerns the stored record.
        """
        code = error.sqlstate or ""
        if not rows and code.startswith("22"):
            return RecordUnreadable(f"PostgreSQL cannot convert the record to JSON (SQLSTATE {code})")

        async def probe(connection: Connection, texts: Sequence[bytes | None], progress: Progress) -> list[Column]:
            """Return the column whose input function rejects its text, if there is one."""
            for column, text in zip(self._sql.layout.data, texts, strict=False):
                if text is not None and text != UNCHANGED:
                    try:
                        # This converts the text as an assignment does: an explicit cast would truncate it.
                        record = f"json_to_record(json_build_object('text', $1::text)) AS r(text {column.full_type})"
                        await connection.execute(f"SELECT FROM {record}", text.decode())
                    except asyncpg.PostgresError as reason:
                        if not is_input_error(reason):
                            raise
                        return [column]
            return []

        for row in rows if is_input_error(error) else ():
            with contextlib.suppress(TableError, *DRIVER_ERRORS):
                for column in await self._retry.run_together(probe, row, until):
                    reason = f"column {column.name!r} of type {column.full_type}: PostgreSQL rejects the member"
                    return InvalidOperation(f"{reason} (SQLSTATE {code})")
        return rejected_row_error(error, self.spec.name)


async def _count(connection: Connection, statement: str, *arguments: int) -> int:
    """Execute a statement, and return how many rows it concerned."""
    return int((await connection.execute(statement, *arguments)).rpartition(" ")[2])
