"""The records of one table in PostgreSQL: which statement an operation goes into, and what the table can do."""

import asyncio
import math
import re
from collections.abc import Callable, Sequence
from typing import Any, cast

import asyncpg

from ...core import (
    NO_EXPIRY,
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
    RecordUnreadable,
    Scan,
    TableError,
    TableSpec,
    Unsupported,
    Write,
    chunks_of,
    is_unconditional,
)
from .column_types import KEPT
from .deadline_retry import Attempts, Sent, Work
from .errors import DRIVER_ERRORS, refusal
from .pool import Connection, Pool
from .rows import Row, key_arrays, records
from .scans import Scanner
from .schema import EXPIRES, WRITERS, Shape
from .statements import Writer
from .value_columns import ValueForm
from .writes import Again, Step, Writes

KEYS_PER_READ = 1000
WRITES_PER_STATEMENT = 1000
BYTES_PER_STATEMENT = 8 * 2**20
"""Of the values that one statement writes."""

ROUNDS_MAX = 16
"""How often a write is decided anew because another made or removed its record meanwhile."""

SWEPT_AT_ONCE = 1000
SWEEPS_IN_A_ROW = 10
SWEEP_MAX_S = 60.0
"""How long a sweep is waited for: nobody else's deadline would end one that is never answered."""

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class PostgresStore:
    """The records of one table."""

    def __init__(self, pool: Pool, spec: TableSpec, shape: Shape, form: ValueForm, clock: Clock) -> None:
        writer = Writer(shape, form.sql)
        self.spec = spec
        self.capabilities = _capabilities(shape, form)
        self._shape = shape
        self._form = form
        self._clock = clock
        self._statements = writer.statements()
        self._attempts = Attempts(pool, spec.name, self._explained)
        self._writes = Writes(spec, form, self._statements, clock)
        self._scanner = Scanner(shape, spec.key, writer, self._statements)
        self._parts = len(spec.key.fields)
        self._uuids = [index for index, column in enumerate(shape.keys) if column.type == "uuid"]
        if spec.ttl_s is not None and not self.capabilities.ttl:
            raise Unsupported(_NO_TTL)

    async def apply(self, operations: Sequence[Operation], until: float = math.inf) -> list[Outcome]:
        """Do the operations: each kind together, in statements of a bounded size."""
        if not self._uuids and set(map(type, operations)) == {Get}:
            return await self._get(cast("Sequence[Get]", operations), until)
        outcomes: list[Outcome] = [self._refused(operation) for operation in operations]
        kinds: dict[Callable[..., Any], list[int]] = {}
        for index, operation in enumerate(operations):
            if outcomes[index] is None:
                kinds.setdefault(self._kind(operation), []).append(index)
        for do, indices in kinds.items():
            chosen = [operations[index] for index in indices]
            for index, outcome in zip(indices, await do(chosen, until), strict=True):
                outcomes[index] = outcome
        return outcomes

    async def scan(self, scan: Scan) -> Page:
        """Read a page in the order of keys."""
        page: Page = await self._looked_up(lambda connection: self._scanner.page(connection, scan, self._clock()))
        return page

    async def splits(self, count_max: int) -> list[bytes]:
        """Divide the table into ranges of its keys that have about as many records."""
        boundaries = await self._looked_up(lambda connection: self._scanner.boundaries(connection, count_max))
        return self._scanner.splits(boundaries)

    async def sweep(self) -> None:
        """Remove some of what has expired. Raise a TableError if that fails or takes long."""
        if not self.capabilities.ttl:
            return
        until = asyncio.get_running_loop().time() + SWEEP_MAX_S
        for _ in range(SWEEPS_IN_A_ROW):
            done = await self._looked_up(
                lambda connection: connection.execute(self._statements.sweep, self._clock(), SWEPT_AT_ONCE), until
            )
            if int(done.rpartition(" ")[2]) < SWEPT_AT_ONCE:
                return

    def _kind(self, operation: Operation) -> Callable[..., Any]:
        if isinstance(operation, Get):
            return self._get
        if operation.token is None and is_unconditional(operation) and not self._shape.side:
            if isinstance(operation, Put):
                return self._put
            if isinstance(operation, Delete):
                return self._delete
        return self._decide

    # Each kind

    async def _get(self, gets: Sequence[Get], until: float) -> list[Outcome]:
        keys = [get.key for get in gets]
        if len(keys) <= KEYS_PER_READ:
            return [*await self._attempts.each(self._read, keys, until)]
        outcomes: list[Outcome] = []
        for part in chunks_of(keys, KEYS_PER_READ):
            outcomes += await self._attempts.each(self._read, part, until)
        return outcomes

    async def _read(self, connection: Connection, keys: Sequence[Key], sent: Sent) -> list[Outcome]:
        answer = await connection.fetchrow(self._statements.read, *key_arrays(keys, self._parts), self._clock())
        return [*map(records(answer, self._parts).get, keys)]

    async def _put(self, puts: Sequence[Put], until: float) -> list[Outcome]:
        return await self._in_parts(self._writes.put, puts, until)

    async def _delete(self, deletes: Sequence[Delete], until: float) -> list[Outcome]:
        return await self._in_parts(self._writes.remove, deletes, until)

    async def _in_parts(self, work: Work[Any, Outcome], items: Sequence[Any], until: float) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for part in chunks_of(items, WRITES_PER_STATEMENT, BYTES_PER_STATEMENT, _size_bytes):
            outcomes += await self._attempts.each(work, part, until)
        return outcomes

    async def _decide(self, writes: Sequence[Write], until: float) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for part in chunks_of(writes, WRITES_PER_STATEMENT, BYTES_PER_STATEMENT, _size_bytes):
            outcomes += await self._in_rounds(part, until)
        return outcomes

    async def _in_rounds(self, writes: Sequence[Write], until: float) -> list[Outcome]:
        """Decide and write, and again what another made meanwhile."""
        outcomes: list[Outcome] = [None] * len(writes)
        waiting = list(range(len(writes)))
        for attempt in range(ROUNDS_MAX):
            answers = await self._round([writes[index] for index in waiting], until)
            again = []
            for index, answer in zip(waiting, answers, strict=True):
                if isinstance(answer, Again):
                    again.append(index)
                else:
                    outcomes[index] = answer
            waiting = again
            if not waiting:
                return outcomes
            try:
                await self._attempts.pause(attempt, until)
            except TableError as error:
                return _filled(outcomes, waiting, error)
        return _filled(outcomes, waiting, Contended(f"others changed the record each of {ROUNDS_MAX} times"))

    async def _round(self, writes: Sequence[Write], until: float) -> list[Outcome | Again]:
        decided = await self._attempts.each(self._writes.decide, writes, until)
        steps = {index: answer for index, answer in enumerate(decided) if isinstance(answer, Step)}
        inserted = await self._attempts.each(self._writes.insert, list(steps.values()), until) if steps else []
        settled = dict(zip(steps, inserted, strict=True))
        return [settled[index] if isinstance(answer, Step) else answer for index, answer in enumerate(decided)]

    # What is refused

    def _refused(self, operation: Operation) -> TableError | None:
        """Say why an operation cannot be sent at all."""
        if self._uuids and not self._uuids_legal(operation.key):
            return InvalidOperation("a key of this table is a uuid, in lower case with its hyphens")
        if isinstance(operation, Get):
            return None
        if operation.token is not None and not self.capabilities.tokens:
            return Unsupported(_NO_TOKENS)
        if not self.capabilities.ttl and not isinstance(operation, Delete) and operation.ttl_s not in (None, NO_EXPIRY):
            return Unsupported(_NO_TTL)
        return None

    def _uuids_legal(self, key: Key) -> bool:
        parts = key if isinstance(key, tuple) else (key,)
        return all(_UUID.fullmatch(str(parts[index])) for index in self._uuids)

    async def _explained(self, error: asyncpg.PostgresError, rows: Sequence[Any], until: float) -> TableError:
        """Say what was wrong with one row that the server refused: if a text does not fit its column, which.

        Where no row was sent, it is what is there.
        """
        if (error.sqlstate or "").startswith("22"):
            if not rows:
                return RecordUnreadable(f"PostgreSQL cannot write the record as JSON (SQLSTATE {error.sqlstate})")
            for row in rows:
                name = await self._culprit(row, until)
                if name is not None:
                    return InvalidOperation(
                        f"column {name!r}: PostgreSQL refuses the member (SQLSTATE {error.sqlstate})"
                    )
        return refusal(error)

    async def _culprit(self, row: Row, until: float) -> str | None:
        async def probe(connection: Connection, texts: Sequence[str], sent: Sent) -> list[str | None]:
            for column, text in zip(self._form.sql.data, texts, strict=False):
                if text == KEPT and column.name in self._form.sql.kept:
                    continue
                try:
                    await connection.fetchval(f"SELECT ($1::text::{column.full_type}) IS NULL", text)
                except asyncpg.DataError:
                    return [column.name]
            return [None]

        try:
            [name] = await self._attempts.whole(probe, row.texts, until)  # type: ignore[arg-type]  # texts or None
        except (TableError, *DRIVER_ERRORS):
            return None
        return name

    async def _looked_up(self, look: Callable[[Connection], Any], until: float = math.inf) -> Any:
        async def work(connection: Connection, items: Sequence[None], sent: Sent) -> list[Any]:
            return [await look(connection)]

        [answer] = await self._attempts.each(work, [None], until)
        if isinstance(answer, TableError):
            raise answer
        return answer


_NO_TOKENS = f"tokens: the table has no column {WRITERS}, and no side table, to remember them in"
_NO_TTL = f"ttl: the table has no column {EXPIRES}, and no side table, to remember when a record expires"


def _capabilities(shape: Shape, form: ValueForm) -> Capabilities:
    if shape.side:
        return Capabilities(any_value=False)
    ttl = EXPIRES in shape.names and form.exact
    return Capabilities(ttl=ttl, tokens=ttl and WRITERS in shape.names and form.absent is not None, any_value=False)


def _size_bytes(item: object) -> int:
    return len(item.value) if isinstance(item, Put) else 0


def _filled(outcomes: list[Outcome], indices: Sequence[int], outcome: Outcome) -> list[Outcome]:
    for index in indices:
        outcomes[index] = outcome
    return outcomes
