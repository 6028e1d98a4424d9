"""One Redis node: a bounded pool of connections, and requests of several commands in one round trip each.

A connection carries one request at a time. It is reused only if all replies to the request have arrived, so a reply is
never taken for the reply to another request.
"""

import asyncio
import math
import re
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias, cast

from redis import exceptions
from redis.asyncio.connection import Connection, SSLConnection, UnixDomainSocketConnection

from ...core import Applied, Connections, DeadlineExceeded, StoreUnavailable, TableError, chunks_of, gather_bounded
from .errors import from_connection_error
from .scripts import Command

Reply: TypeAlias = Any
"""A reply of the server. Error replies are exceptions of the driver; a TableError means that no reply arrived."""

EXPIRY_UNKNOWN = object()
"""Replaces a reply without expiries if the database has expiring keys."""

INFO_KEYSPACE = b"*2\r\n$4\r\nINFO\r\n$8\r\nkeyspace\r\n"

REQUEST_COMMANDS_MAX = 1000
REQUEST_BYTES_MAX = 4 * 2**20
REQUESTS_CONCURRENCY_MAX = 4
"""How many requests of one call to a node run concurrently."""

ASKING = b"*1\r\n$6\r\nASKING\r\n"


class NodeConnection(Protocol):
    """A connection of the driver that can be closed immediately."""

    async def connect(self) -> None:
        """Connect and authenticate."""
        ...

    async def send_packed_command(self, command: bytes, check_health: bool = True) -> None:
        """Send bytes that contain complete commands."""
        ...

    async def read_response(self, *, disconnect_on_error: bool = True) -> Any:
        """Return the next reply, or raise it if it is an error reply."""
        ...

    async def can_read(self) -> bool:
        """Whether the connection was closed, or has unexpected data."""
        ...

    def abort(self) -> None:
        """Close the connection without sending the rest of its data."""
        ...


class _AbortMixin:
    _writer: asyncio.StreamWriter | None
    _reader: asyncio.StreamReader | None

    async def disconnect(self, *_: Any, **__: Any) -> None:
        """Close the connection, as the driver does after errors, without waiting for a peer that does not read."""
        self.abort()

    def abort(self) -> None:
        """Close the connection now."""
        if self._writer is not None:
            self._writer.transport.abort()
        self._writer = self._reader = None


class _TcpConnection(_AbortMixin, Connection):
    """A connection over TCP."""


class _TlsConnection(_AbortMixin, SSLConnection):
    """A connection over TLS."""


class _UnixConnection(_AbortMixin, UnixDomainSocketConnection):
    """A connection over a Unix socket."""


def connection_type(connection_class: type[Any] | None) -> Callable[..., NodeConnection]:
    """Return our subclass of the connection class that the driver chose for a URL."""
    kinds = {None: _TcpConnection, SSLConnection: _TlsConnection, UnixDomainSocketConnection: _UnixConnection}
    return cast("Callable[..., NodeConnection]", kinds[connection_class])


class Node:
    """One server and its connection pool."""

    def __init__(
        self,
        make_connection: Callable[[], NodeConnection],
        database: int,
        connections_max: int,
        connect_timeout_s: float,
    ) -> None:
        self._make_connection = make_connection
        self._has_expiring = re.compile(rb"db%d:keys=\d+,expires=([1-9])" % database)
        self._connect_timeout_s = connect_timeout_s
        self._connections_max = connections_max
        self._semaphore = asyncio.Semaphore(connections_max)
        self._in_use = 0
        self._idle: list[NodeConnection] = []
        self._closed = False

    async def run(
        self, commands: Sequence[Command], until: float, *, writes: bool, asking: bool = False
    ) -> list[Reply]:
        """Send commands, several in a request, and return the reply to each.

        With `writes`, commands without a reply may have been applied. With `asking`, the node accepts commands for a
        slot that it is importing.
        """
        replies = await self._run(commands, until, writes=writes, asking=asking)
        not_loaded = [index for index, reply in enumerate(replies) if isinstance(reply, exceptions.NoScriptError)]
        if not_loaded:  # The server has restarted and lost its scripts. It has not run these commands.
            retried = [commands[index] for index in not_loaded]
            for index, reply in zip(
                not_loaded, await self._run(retried, until, writes=writes, asking=asking, script_text=True), strict=True
            ):
                replies[index] = reply
        return replies

    async def read(self, commands: Sequence[Command], until: float, *, asking: bool = False) -> list[Reply]:
        """Send commands that read values and return the replies, or EXPIRY_UNKNOWN if keys of the database expire.

        Each request ends with a query for the number of expiring keys. It counts every expiring record that was read
        just before, unless the record has been replaced or removed since.
        """
        requests = [self._read(request, until, asking) for request in chunks_of(commands, REQUEST_COMMANDS_MAX)]
        return [reply for replies in await gather_bounded(requests, REQUESTS_CONCURRENCY_MAX) for reply in replies]

    async def send(self, packed: bytes, count: int, until: float, *, writes: bool = False) -> list[Reply]:
        """Send one request and return its `count` replies."""
        applied: Applied = "no"
        replies: list[Reply] = []
        try:
            async with asyncio.timeout_at(None if until == math.inf else until) as limit, self._semaphore:
                connection, complete = None, False
                self._in_use += 1
                try:
                    connection = await self._acquire()
                    applied = "unknown" if writes else "no"
                    await connection.send_packed_command(packed, check_health=False)
                    for _ in range(count):
                        replies.append(await _read_reply(connection))  # noqa: PERF401  # kept if a later one fails
                    complete = not _is_demoted(replies)
                finally:
                    self._release(connection, reusable=complete)
        except TableError as failure:
            error = failure
        except (exceptions.RedisError, OSError) as failure:  # OSError: TimeoutError too
            if limit.expired():
                error = DeadlineExceeded("the deadline passed before Redis replied", applied=applied)
            else:
                error = from_connection_error(failure, applied)
                self._drop_idle()
        else:
            return replies
        return replies + [error] * (count - len(replies))

    def connections(self) -> Connections:
        """Return the current number of connections."""
        return Connections(self._in_use, self._in_use + len(self._idle), self._connections_max)

    def close(self) -> None:
        """Close idle connections now, and those in use when their requests end."""
        self._closed = True
        self._drop_idle()

    async def _run(
        self, commands: Sequence[Command], until: float, *, writes: bool, asking: bool, script_text: bool = False
    ) -> list[Reply]:
        packed = [command.packed(script_text=script_text) for command in commands]
        if asking:
            packed = [ASKING + one for one in packed]
        requests = list(chunks_of(packed, REQUEST_COMMANDS_MAX, REQUEST_BYTES_MAX, len))
        stride = 2 if asking else 1
        calls = [self.send(b"".join(request), stride * len(request), until, writes=writes) for request in requests]
        answers = await gather_bounded(calls, REQUESTS_CONCURRENCY_MAX)
        return [reply for replies in answers for reply in replies[stride - 1 :: stride]]

    async def _read(self, commands: Sequence[Command], until: float, asking: bool) -> list[Reply]:
        prefix, stride = (ASKING, 2) if asking else (b"", 1)
        packed = b"".join([prefix + command.packed() for command in commands])
        *replies, keyspace = await self.send(packed + INFO_KEYSPACE, stride * len(commands) + 1, until)
        if isinstance(keyspace, TableError):
            return [keyspace] * len(commands)
        if isinstance(keyspace, bytes) and not self._has_expiring.search(keyspace):
            return replies[stride - 1 :: stride]
        return [EXPIRY_UNKNOWN] * len(commands)

    async def _acquire(self) -> NodeConnection:
        if self._closed:
            raise StoreUnavailable("the connections to Redis are closed")
        while self._idle:
            connection = self._idle.pop()
            if not await connection.can_read():
                return connection
            connection.abort()  # The server closed it, or it has unexpected data.
        connection, connected = self._make_connection(), False
        try:
            async with asyncio.timeout(self._connect_timeout_s) as limit:
                await connection.connect()
            connected = True
        except (exceptions.RedisError, OSError) as error:  # OSError: TimeoutError too
            if limit.expired():
                raise StoreUnavailable(f"Redis accepted no connection within {self._connect_timeout_s} s") from error
            raise from_connection_error(error, "no") from error
        finally:
            if not connected:
                connection.abort()
        return connection

    def _drop_idle(self) -> None:
        """Close idle connections: after one has broken, the others are probably broken too."""
        while self._idle:
            self._idle.pop().abort()

    def _release(self, connection: NodeConnection | None, *, reusable: bool) -> None:
        self._in_use -= 1
        if connection is None:
            return
        if reusable and not self._closed:
            self._idle.append(connection)
        else:
            connection.abort()


def _is_demoted(replies: Sequence[Reply]) -> bool:
    """Whether the server has become a replica. A new connection to the same host name may reach the new primary."""
    last = replies[-1]
    return isinstance(last[0] if type(last) is list and last else last, exceptions.ReadOnlyError)


async def _read_reply(connection: NodeConnection) -> Reply:
    try:
        return await connection.read_response(disconnect_on_error=False)
    except exceptions.ResponseError as error:
        return error
    except (exceptions.AuthenticationError, exceptions.BusyLoadingError) as error:
        return error  # The driver treats these replies as broken connections.
