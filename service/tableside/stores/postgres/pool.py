"""A bounded pool of connections to one PostgreSQL server, opened on demand.

asyncpg's own pool starts a task for each connection that it takes back, and waits without limit for one to close. This
store never changes session state, so it takes back connections unchanged. It closes a connection that was abandoned
before its response arrived in the background.

After a failover the old server may still answer. If a connection shows that its server has another role now, or if it
is too old, the pool opens new connections, which follow the DSN again.
"""

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeAlias

import asyncpg

from ...core import Connections
from .errors import is_connection_error, is_read_only_error
from .session import Connection, one_session

Connect: TypeAlias = Callable[[], Awaitable[Connection]]

CLOSE_TIMEOUT_S = 1.0
"""The time a discarded connection has to cancel its statement and close. After it, the connection is terminated."""

IDLE_MAX_S = 30.0
"""How long an idle connection stays open, because firewalls drop quiet connections."""


class Pool:
    """Lends at most `maximum` connections at a time. Further borrowers wait in order of arrival."""

    def __init__(self, connect: Connect, maximum: int, minimum: int = 0, *, age_max_s: float) -> None:
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
        """Lend a connection, or with `fresh` a newly opened one.

        The pool keeps the connection if the block succeeds or only a statement fails. Another exception may have left
        the connection in the middle of a statement, so the pool closes it.
        """
        await self._free.acquire()
        connection = None
        reusable = False
        try:
            connection = (None if fresh else self._take_idle()) or await self._connect_new()
            try:
                async with one_session(connection):
                    yield connection
                reusable = True
            except asyncpg.PostgresError as error:
                reusable = not is_connection_error(error)  # only the statement failed
                if is_read_only_error(error) and not connection.was_read_only:
                    self._renew()
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
        """Return the most recently used idle connection that is usable."""
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
        if connection.has_changed_role:
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
            with contextlib.suppress(Exception):
                try:
                    await asyncio.wait_for(connection.close(timeout=CLOSE_TIMEOUT_S), CLOSE_TIMEOUT_S)
                except TimeoutError:
                    self._renew()
        finally:
            connection.terminate()
            self._open.discard(connection)
