"""A bounded pool of connections to one PostgreSQL server: asyncpg's pool, with an end to every wait for the network.

asyncpg's pool waits without limit for a connection to close, and resets each connection with a round trip. This store
never changes session state, so it needs no reset.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import asyncpg

from ...core import Connections, TableError
from .errors import DRIVER_ERRORS, is_connection_error

Connection: TypeAlias = asyncpg.pool.PoolConnectionProxy
Connect: TypeAlias = Callable[..., Coroutine[Any, Any, asyncpg.Connection]]

CLOSE_TIMEOUT_S = 1.0
"""The time a connection has to cancel its statement and close; after it, the connection is terminated."""

IDLE_MAX_S = 30.0
"""How long an idle connection above the minimum stays open, because firewalls drop quiet connections."""

PROBE_TIMEOUT_S = 5.0
"""The time to open or use a connection below the minimum."""


class _BoundedConnection(asyncpg.Connection):
    """A connection that closes within CLOSE_TIMEOUT_S, whatever the network does."""

    async def close(self, **_: Any) -> None:
        """Cancel the running statement and close the connection, or terminate it."""
        with contextlib.suppress(*DRIVER_ERRORS):
            await super().close(timeout=CLOSE_TIMEOUT_S)


class Pool:
    """Lends at most `maximum` connections at a time; further borrowers wait in order of arrival."""

    def __init__(self, connect: Connect, maximum: int, minimum: int = 0) -> None:
        self._pool = asyncpg.create_pool(
            connect=connect,
            connection_class=_BoundedConnection,
            min_size=0,  # a minimum there connects at once, and fails if that fails
            max_size=maximum,
            max_queries=2**63,
            max_inactive_connection_lifetime=IDLE_MAX_S,
            reset=_keep_session,
        )
        self._minimum = minimum
        self._maximum = maximum
        self._borrowers = 0
        self._closing: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Prepare to lend connections; needs no network."""
        await self._pool

    @asynccontextmanager
    async def connection(self, *, fresh: bool = False) -> AsyncIterator[Connection]:
        """Lend a connection; with `fresh`, a newly opened one, and the pool replaces all others before their next use.

        The pool keeps the connection if the block succeeds or only a statement fails. Another exception may have left
        the connection in the middle of a statement, so the pool closes it in the background.
        """
        if fresh:
            await self._pool.expire_connections()
        self._borrowers += 1
        try:
            connection = await self._pool.acquire()
        except BaseException:
            self._borrowers -= 1
            raise
        try:
            yield connection
        except BaseException as error:
            if isinstance(error, asyncpg.PostgresError) and not is_connection_error(error):
                await self._return(connection)  # only the statement failed
            else:
                self._discard(connection)
            raise
        await self._return(connection)

    def connections(self) -> Connections:
        """Return the connection counts; connections that are being opened or closed count as in use."""
        in_use = min(self._borrowers, self._maximum)
        return Connections(in_use, in_use + self._pool.get_idle_size(), self._maximum)

    async def maintain(self) -> None:
        """Open connections up to the minimum, and use each of them, so that it is not idle for too long."""
        await asyncio.gather(*(self._probe() for _ in range(self._minimum)))

    async def close(self) -> None:
        """Close all connections; those still lent after twice CLOSE_TIMEOUT_S are terminated."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._pool.close(), 2 * CLOSE_TIMEOUT_S)

    async def _probe(self) -> None:
        with contextlib.suppress(TableError, *DRIVER_ERRORS):
            async with asyncio.timeout(PROBE_TIMEOUT_S), self.connection() as connection:
                await connection.execute("SELECT 1")

    async def _return(self, connection: Connection) -> None:
        try:
            with contextlib.suppress(*DRIVER_ERRORS):  # the pool terminates it, and the result stands
                await self._pool.release(connection, timeout=CLOSE_TIMEOUT_S)
        finally:
            self._borrowers -= 1

    def _discard(self, connection: Connection) -> None:
        task = asyncio.get_running_loop().create_task(self._close(connection))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _close(self, connection: Connection) -> None:
        with contextlib.suppress(*DRIVER_ERRORS):  # the pool has already taken back a connection that was lost
            await connection.close()
        await self._return(connection)


async def _keep_session(connection: Any) -> None:
    """Return a connection to the pool as it is."""
