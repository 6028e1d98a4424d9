"""A bounded number of connections to one PostgreSQL, made as they are needed.

asyncpg's own pool resets each connection with a round trip before it is used again, and waits on a network that hangs;
nothing here changes a session, so there is nothing to reset, and a connection whose answer was not waited for is
closed aside. Knows nothing of tables.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeAlias

import asyncpg

from ...core import Connections
from .errors import connection_lost

Connection: TypeAlias = asyncpg.Connection
Connect: TypeAlias = Callable[[], Awaitable[Connection]]

CLOSE_MAX_S = 1.0
"""How long a connection that is given up may take to cancel its statement and to say goodbye; then it is cut."""

IDLE_MAX_S = 300.0
"""How long a connection beyond the least number is kept without work."""

TRUSTED_S = 30.0
"""A connection that has rested longer is asked whether it still is one: firewalls drop what is quiet."""

PROBE_MAX_S = 1.0


class Pool:
    """Lends out connections, at most `maximum` at once; who asks when all are lent waits in turn."""

    def __init__(self, connect: Connect, maximum: int, minimum: int = 0) -> None:
        self._connect = connect
        self._minimum = minimum
        self._maximum = maximum
        self._connecting = 0
        self._free = asyncio.Semaphore(maximum)
        self._idle: list[tuple[float, Connection]] = []
        self._open: set[Connection] = set()
        self._leaving: set[asyncio.Task[None]] = set()
        self._closed = False

    @asynccontextmanager
    async def connection(self, *, fresh: bool = False) -> AsyncIterator[Connection]:
        """Lend a connection; a fresh one was made for the purpose.

        It is kept if it is fit to be used again: what raised may have left it in the middle of a statement.
        """
        await self._free.acquire()
        lent = None
        fit = False
        try:
            lent = await self._opened() if fresh else (await self._rested() or await self._opened())
            try:
                yield lent
                fit = True
            except asyncpg.PostgresError as error:
                fit = not connection_lost(error)  # only the statement failed
                raise
        finally:
            self._returned(lent, fit=fit)

    def connections(self) -> Connections:
        """Return how many there are; in use are also those that are being made, or are on their way out."""
        now = self._connecting + sum(not one.is_closed() for one in self._open)
        idle = sum(not one.is_closed() for _, one in self._idle)
        return Connections(now - idle, now, self._maximum)

    async def tend(self) -> None:
        """Let go of what has not been used for long, and keep the least number open."""
        before = time.monotonic() - IDLE_MAX_S
        while self._idle and self._idle[0][0] < before and len(self._open) > self._minimum:
            self._give_up(self._idle.pop(0)[1])
        while len(self._open) < self._minimum and not self._free.locked():
            async with self.connection(fresh=True):
                pass

    async def close(self) -> None:
        """Close every connection; what is lent is closed when it comes back."""
        self._closed = True
        while self._idle:
            self._give_up(self._idle.pop()[1])
        if self._leaving:
            await asyncio.wait(self._leaving)

    async def _opened(self) -> Connection:
        self._connecting += 1
        try:
            connection = await self._connect()
        finally:
            self._connecting -= 1
        self._open.add(connection)
        return connection

    async def _rested(self) -> Connection | None:
        """Return the connection that rested shortest and still is one."""
        while self._idle:
            since, connection = self._idle.pop()
            try:
                sound = time.monotonic() - since < TRUSTED_S or await _answers(connection)
                if sound and not connection.is_closed():
                    return connection
            except BaseException:
                self._give_up(connection)
                raise
            self._give_up(connection)
        return None

    def _returned(self, connection: Connection | None, *, fit: bool) -> None:
        if connection is None:
            self._free.release()
        elif fit and not self._closed and not connection.is_closed() and not connection.is_in_transaction():
            self._idle.append((time.monotonic(), connection))
            self._free.release()
        else:
            self._give_up(connection).add_done_callback(lambda _: self._free.release())

    def _give_up(self, connection: Connection) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(self._leave(connection))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)
        return task

    async def _leave(self, connection: Connection) -> None:
        """Cancel what the connection still does and close it; cut it if that takes long."""
        try:
            with contextlib.suppress(Exception):
                await asyncio.wait_for(connection.close(timeout=CLOSE_MAX_S), CLOSE_MAX_S)
        finally:
            connection.terminate()
            self._open.discard(connection)


async def _answers(connection: Connection) -> bool:
    try:
        async with asyncio.timeout(PROBE_MAX_S):
            await connection.execute("SELECT 1")
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
        return False
    return True
