"""Transports for httpx that find a free connection without a search.

httpx's own pool examines all of its connections for each request, which costs more than the request itself if many
requests are in flight. These transports have one httpx transport for each connection, and prefer the connection that
became free last.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

import httpx

Connection = TypeVar("Connection")


class FreeConnections(Generic[Connection]):
    """Creates connections, and keeps the ones that no request uses. Thread-safe.

    Args:
        connect: Creates a connection.
        idle_max_s: The time after which an unused connection expires, in seconds.
        clock: The current time, in seconds.
    """

    def __init__(
        self, connect: Callable[[], Connection], idle_max_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._connect = connect
        self._idle_max_s = idle_max_s
        self._clock = clock
        self._free: deque[tuple[float, Connection]] = deque()
        self.opened: set[Connection] = set()

    def take(self) -> Connection:
        """Return the connection that became free last, or a new one."""
        try:
            return self._free.pop()[1]
        except IndexError:
            connection = self._connect()
            self.opened.add(connection)
            return connection

    def put(self, connection: Connection) -> None:
        """Return a connection that `take` returned."""
        self._free.append((self._clock(), connection))

    def expired(self) -> Connection | None:
        """Remove and return the connection that has been free for longest, None if it has not expired."""
        try:
            since_s, connection = self._free.popleft()
        except IndexError:
            return None
        if self._clock() - since_s <= self._idle_max_s:
            self._free.appendleft((since_s, connection))
            return None
        self.opened.discard(connection)
        return connection


class Connections(httpx.BaseTransport):
    """At most `connections_max` connections for threads. `connect` creates the transport of one."""

    def __init__(self, connections_max: int, idle_max_s: float, connect: Callable[[], httpx.BaseTransport]) -> None:
        self._allowed = threading.Semaphore(connections_max)
        self._connections = FreeConnections(connect, idle_max_s)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request over a free connection, and read the whole response."""
        with self._allowed:
            connection = self._connections.take()
            try:
                response = connection.handle_request(request)
                response.read()
            finally:
                self._connections.put(connection)
        if (expired := self._connections.expired()) is not None:
            expired.close()
        return response

    def close(self) -> None:
        """Close all connections. Requests in flight fail."""
        for connection in list(self._connections.opened):
            connection.close()


class AsyncConnections(httpx.AsyncBaseTransport):
    """At most `connections_max` connections for the tasks of one event loop. `connect` creates the transport of one."""

    def __init__(
        self, connections_max: int, idle_max_s: float, connect: Callable[[], httpx.AsyncBaseTransport]
    ) -> None:
        self._allowed = asyncio.Semaphore(connections_max)
        self._connections = FreeConnections(connect, idle_max_s)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request over a free connection, and read the whole response."""
        async with self._allowed:
            connection = self._connections.take()
            try:
                response = await connection.handle_async_request(request)
                await response.aread()
            finally:
                self._connections.put(connection)
        if (expired := self._connections.expired()) is not None:
            await expired.aclose()
        return response

    async def aclose(self) -> None:
        """Close all connections. Requests in flight fail."""
        for connection in list(self._connections.opened):
            await connection.aclose()
