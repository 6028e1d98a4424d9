"""The connections of one database: their sessions, a pool that lends them, and work that is retried on them.

A pooler such as pgbouncer in transaction mode may use another session of the server for each transaction of a client.
Parameters and prepared statements of one transaction are then missing in the next one, or belong to another client.
Behind a pooler, every use of a connection is therefore one transaction that sets the parameters for itself, and
statements have no name. A direct connection sets the parameters once.

asyncpg's own pool starts a task for each connection that it takes back, and waits without limit for one to close. This
store never changes session state, so its pool takes back connections unchanged. It closes a connection that was
abandoned before its response arrived in the background.

After a failover the old server may still answer. If a connection shows that its server has another role now, or if it
is too old, the pool opens new connections, which follow the DSN again.
"""

import asyncio
import math
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeAlias, TypeVar
from uuid import uuid4

import asyncpg
import msgspec

from ...core import Applied, Connections, Contended, DeadlineExceeded, TableError, exponential_backoff_s
from .errors import DRIVER_ERRORS, is_connection_error, is_input_error, is_row_error, translate_error

BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"

STATEMENTS_MAX = 100
"""How many prepared statements a direct connection keeps."""

CLOSE_TIMEOUT_S = 1.0
"""The time a discarded connection has to cancel its statement and close. After it, the connection is terminated."""

IDLE_MAX_S = 30.0
"""How long an idle connection stays open, because firewalls drop quiet connections."""

ATTEMPTS_MAX = 64
"""How often a transaction is tried that the server rolls back each time."""

PAUSE_S = 0.002
PAUSE_MAX_S = 0.25

Item = TypeVar("Item")
Result = TypeVar("Result")

_PARAMETERS = {
    "TimeZone": "UTC",
    "DateStyle": "ISO, YMD",
    "IntervalStyle": "iso_8601",
    "jit": "off",
    "extra_float_digits": "1",
    "array_nulls": "on",
    "bytea_output": "hex",
}
_CLIENT_CHECK = {"client_connection_check_interval": "1s"}
"""Ends statements whose client has disconnected, so that they release their locks. Requires PostgreSQL 14."""


class Connection(asyncpg.Connection):
    """A connection to a server, or to a pooler if `is_pooled`.

    The names of its prepared statements are unique: in a session that a pooler shares, a name never has the statement
    of another process.
    """

    is_pooled = False

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.opened_at = time.monotonic()
        self.role_at_opening = self.role()

    def role(self) -> tuple[str | None, str | None]:
        """Return whether the server is a standby, and whether it is read-only: `on` or `off`, None if unknown.

        PostgreSQL 14 and later report this without a request, with the answer to any statement.
        """
        settings = self.get_settings()
        return getattr(settings, "in_hot_standby", None), getattr(settings, "default_transaction_read_only", None)

    def _get_unique_id(self, prefix: str) -> str:
        return f"tableside_{prefix}_{uuid4().hex}"


async def configure(connection: Connection) -> bool:
    """Set the parameters of a new direct connection. Return False, without an effect, if it leads to a pooler.

    A pooler does not report the process of its session as its own: it uses several, one after the other.
    """
    isolation = "set_config('default_transaction_isolation', 'read committed', False)"
    where = f"pg_backend_pid() = {connection.get_server_pid()}"
    sql = f"{_set_parameters(connection, local=False)}, {isolation} WHERE {where}"
    return await connection.execute(sql) == "SELECT 1"


def _set_parameters(connection: Connection, *, local: bool) -> str:
    parameters = _PARAMETERS | (_CLIENT_CHECK if connection.get_server_version() >= (14,) else {})
    return "SELECT " + ", ".join(f"set_config('{name}', '{value}', {local})" for name, value in parameters.items())


class Pool:
    """Lends at most `maximum` connections at a time. Further borrowers wait in order of arrival."""

    def __init__(
        self, connect: Callable[[], Awaitable[Connection]], maximum: int, minimum: int, age_max_s: float
    ) -> None:
        self._connect = connect
        self._minimum = minimum
        self._maximum = maximum
        self._age_max_s = age_max_s
        self._renewed_at = -math.inf
        self._connecting = 0
        self._free = asyncio.Semaphore(maximum)
        self._idle: list[tuple[float, Connection]] = []
        self._open: set[Connection] = set()
        self._closing: set[asyncio.Task[None]] = set()
        self._closed = False

    @asynccontextmanager
    async def connection(self, *, fresh: bool = False) -> AsyncIterator[Connection]:
        """Lend a connection, or with `fresh` a newly opened one. Its statements are executed in one session.

        The pool keeps the connection if the block succeeds or only a statement fails, which rolls back a transaction.
        Another exception may have left the connection in the middle of a statement, so the pool closes it.
        """
        await self._free.acquire()
        connection = None
        reusable = False
        try:
            connection = (None if fresh else self._take_idle()) or await self._connect_new()
            try:
                if connection.is_pooled:
                    await connection.execute(f"{BEGIN}; {_set_parameters(connection, local=True)}")
                yield connection
                if connection.is_pooled and connection.is_in_transaction():
                    await connection.execute("COMMIT")
                reusable = True
            except asyncpg.PostgresError as error:
                if isinstance(error, asyncpg.ReadOnlySQLTransactionError) and "on" not in connection.role_at_opening:
                    self._renew()
                if not is_connection_error(error):  # only the statement failed
                    if connection.is_in_transaction():
                        await connection.execute("ROLLBACK")
                    reusable = True
                raise
        finally:
            self._release(connection, reusable=reusable)

    def connections(self) -> Connections:
        """Return the connection counts. Connections that are being opened or closed count as in use."""
        count = self._connecting + sum(not connection.is_closed() for connection in self._open)
        idle = sum(not connection.is_closed() for _, connection in self._idle)
        return Connections(count - idle, count, self._maximum)

    async def maintain(self) -> None:
        """Close connections that were idle for too long or are too old, and open connections up to the minimum."""
        idle_before, idle = time.monotonic() - IDLE_MAX_S, self._idle
        self._idle = []
        for released_at, connection in idle:
            if released_at < idle_before or not self._is_usable(connection):
                self._discard(connection)
            else:
                self._idle.append((released_at, connection))
        while len(self._open) - len(self._closing) < self._minimum and not self._free.locked():
            async with self.connection(fresh=True):
                pass

    async def close(self) -> None:
        """Close all connections. A lent connection is closed when it is returned."""
        self._closed = True
        while self._idle:
            self._discard(self._idle.pop()[1])
        if self._closing:
            await asyncio.wait(self._closing)

    async def _connect_new(self) -> Connection:
        while self._closing and len(self._open) + self._connecting >= self._maximum:
            await asyncio.wait({*self._closing}, return_when=asyncio.FIRST_COMPLETED)
        self._connecting += 1
        try:
            connection = await self._connect()
        finally:
            self._connecting -= 1
        self._open.add(connection)
        return connection

    def _take_idle(self) -> Connection | None:
        while self._idle:
            _, connection = self._idle.pop()
            if self._is_usable(connection):
                return connection
            self._discard(connection)
        return None

    def _release(self, connection: Connection | None, *, reusable: bool) -> None:
        if connection is None:
            self._free.release()
            return
        if connection.role() != connection.role_at_opening:  # it was promoted, or is read-only now
            self._renew()
        if reusable and not self._closed and self._is_usable(connection) and not connection.is_in_transaction():
            self._idle.append((time.monotonic(), connection))
            self._free.release()
        else:
            self._discard(connection).add_done_callback(lambda _: self._free.release())

    def _is_usable(self, connection: Connection) -> bool:
        opened_after = max(self._renewed_at, time.monotonic() - self._age_max_s)
        return not connection.is_closed() and connection.opened_at > opened_after

    def _renew(self) -> None:
        """Replace all connections that are open now, each as soon as it is free."""
        self._renewed_at = time.monotonic()

    def _discard(self, connection: Connection) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(self._close(connection))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        return task

    async def _close(self, connection: Connection) -> None:
        """Cancel the running statement and close the connection. Terminate it after CLOSE_TIMEOUT_S.

        A server that does not answer that either is lost, with all other connections to it.
        """
        try:
            with suppress(Exception):
                try:
                    await asyncio.wait_for(connection.close(timeout=CLOSE_TIMEOUT_S), CLOSE_TIMEOUT_S)
                except TimeoutError:
                    self._renew()
        finally:
            connection.terminate()
            self._open.discard(connection)


Texts: TypeAlias = tuple[bytes | None, ...]
"""The texts of a row's written columns, in their order. None is NULL."""


class Progress(msgspec.Struct):
    """The progress of one attempt: whether a write was sent whose response is unknown, and the texts of its rows."""

    applied: Applied = "no"
    texts: Sequence[Texts] = ()


Work: TypeAlias = Callable[[Connection, Sequence[Item], Progress], Awaitable[Sequence[Result]]]
Explain: TypeAlias = Callable[[asyncpg.PostgresError, Sequence[Texts], float], Awaitable[TableError]]


class RowsRejected(Exception):
    """The server rejected some of the rows that the work sent. Its text has no values, because it may be logged."""

    def __init__(self, error: BaseException, texts: Sequence[Texts]) -> None:
        super().__init__()
        self.error: Any = error
        self.texts = texts


class DeadlineRetry:
    """Runs work on the connections of a pool for one table. `explain` returns the error of one rejected row."""

    def __init__(self, pool: Pool, table: str, explain: Explain) -> None:
        self._pool = pool
        self._table = table
        self._explain = explain
        self._exceeded = f"table {table!r}: the deadline was exceeded"

    async def run_each(
        self, work: Work[Item, Result], items: Sequence[Item], until: float
    ) -> Sequence[Result | TableError]:
        """Return a result or an error for each item. Items that the server rejects do not affect the others."""
        try:
            return await self.run_together(work, items, until)
        except TableError as error:
            return [error] * len(items)
        except RowsRejected as rejected:
            if len(items) == 1:
                return [await self._explain(rejected.error, rejected.texts, until)]
        middle = len(items) // 2
        return [*await self.run_each(work, items[:middle], until), *await self.run_each(work, items[middle:], until)]

    async def run_together(self, work: Work[Item, Result], items: Sequence[Item], until: float) -> Sequence[Result]:
        """Run the work for all items together. Raise a TableError if it fails, RowsRejected if some items do."""
        repeated = fresh = False
        for attempt in range(ATTEMPTS_MAX):
            progress = Progress()
            try:
                async with asyncio.timeout_at(until if until < math.inf else None):
                    async with self._pool.connection(fresh=fresh) as connection:
                        return await work(connection, items, progress)
            except DRIVER_ERRORS as error:
                if isinstance(error, TimeoutError) and time.monotonic() >= until:
                    raise DeadlineExceeded(self._exceeded, applied=progress.applied) from None
                if is_row_error(error) or (progress.texts and is_input_error(error)):
                    raise RowsRejected(error, progress.texts) from error
                lost = is_connection_error(error) and progress.applied == "no"
                if not repeated and (lost or isinstance(error, asyncpg.ReadOnlySQLTransactionError)):
                    repeated, fresh = True, lost
                    continue
                if not isinstance(error, asyncpg.SerializationError | asyncpg.DeadlockDetectedError):
                    raise translate_error(error, self._table, applied=progress.applied) from error
                fresh = False
            pause_s = exponential_backoff_s(attempt, PAUSE_S, PAUSE_MAX_S, random.random)
            if time.monotonic() + pause_s >= until:
                raise DeadlineExceeded(self._exceeded)
            await asyncio.sleep(pause_s)
        raise Contended(f"table {self._table!r}: PostgreSQL rolled back the transaction {ATTEMPTS_MAX} times")
