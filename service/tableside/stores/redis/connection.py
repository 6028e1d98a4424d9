"""One Redis node: a bounded pool of connections, and requests of several commands in one round trip each.

A connection carries one request at a time. It is reused only if all replies to the request have arrived, so a reply is
never used as the reply to another request. The driver connects and authenticates. Then requests and replies are
exchanged without it, because it reads each reply from a stream by several coroutines, which copy its bytes.
"""

import asyncio
import math
import re
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, TypeAlias, TypedDict, Unpack

from hiredis import Reader
from redis import exceptions
from redis.asyncio.connection import Connection, SSLConnection

from ...core import (
    NOT_READ,
    Applied,
    Connections,
    DeadlineExceeded,
    ReadBudget,
    StoreUnavailable,
    TableError,
    Yielder,
    chunks_of,
    gather_bounded,
)
from .errors import from_connection_error
from .scripts import LONG_WORD_BYTES, Command

Reply: TypeAlias = Any
"""A reply of the server. Error replies are exceptions of the driver. A TableError means that no reply arrived."""

EXPIRY_UNKNOWN = object()
"""Replaces a reply without expiries if the database has expiring keys."""

INFO_KEYSPACE = b"*2\r\n$4\r\nINFO\r\n$8\r\nkeyspace\r\n"

BUFFER_BYTES_MAX = 2**20
"""A parser keeps a buffer of the size of the replies until the next ones arrive. Larger buffers are freed before."""

REQUEST_COMMANDS_MAX = 1000
REQUEST_BYTES_MAX = 2**20
REQUESTS_CONCURRENCY_MAX = 4
"""How many requests of one call to a node run concurrently."""

LARGE_REPLIES_BYTES = 2**16
"""Replies that are larger together are handled in turn."""

ROLE = b"*1\r\n$4\r\nROLE\r\n"
ASKING = b"*1\r\n$6\r\nASKING\r\n"


class RunOptions(TypedDict, total=False):
    """The options of commands.

    With `writes`, commands without a reply may have been applied. Commands whose replies exceed the `budget` return
    NOT_READ. With `check_expiry`, they return EXPIRY_UNKNOWN if keys of the database expire.
    """

    writes: bool
    budget: ReadBudget | None
    check_expiry: bool


class Node:
    """One server and its connection pool.

    `place` follows "Redis" in the messages of errors, if the address is not in the settings. With `primary_only`, a
    connection to a replica is an error.
    """

    def __init__(
        self,
        make_connection: "Callable[[], NodeConnection]",
        database: int,
        connections_max: int,
        connect_timeout_s: float,
        *,
        place: str = "",
        primary_only: bool = False,
    ) -> None:
        self._make_connection = make_connection
        self._has_expiring = re.compile(rb"db%d:keys=\d+,expires=([1-9])" % database)
        self._connect_timeout_s = connect_timeout_s
        self._connections_max = connections_max
        self._database = database
        self._place = place
        self._primary_only = primary_only
        self._semaphore = asyncio.Semaphore(connections_max)
        self._turn = asyncio.Lock()
        self._in_use = 0
        self._idle: list[NodeConnection] = []
        self._closed = False

    async def run(
        self, commands: Sequence[Command], until: float, *, asking: bool = False, **options: Unpack[RunOptions]
    ) -> list[Reply]:
        """Send commands, several in a request, and return the reply to each.

        With `asking`, the node accepts commands for a slot that it is importing. See `RunOptions` for the others.
        """
        if len(commands) == 1 and not asking:  # A call for single operations: most calls.
            replies = await self.send(commands[0].packed(), 1, until, **options)
        else:
            replies = await self._run(commands, until, options, asking=asking)
        not_loaded = [index for index, reply in enumerate(replies) if isinstance(reply, exceptions.NoScriptError)]
        if not_loaded:  # The server has restarted and lost its scripts. It has not run these commands.
            retried = [commands[index] for index in not_loaded]
            answers = await self._run(retried, until, options, asking=asking, script_text=True)
            for index, reply in zip(not_loaded, answers, strict=True):
                replies[index] = reply
        return replies

    async def send(self, parts: list[bytes], count: int, until: float, **options: Unpack[RunOptions]) -> list[Reply]:
        """Send one request and return its `count` replies. Stop receiving, with NOT_READ, if they exceed the budget."""
        budget = options.get("budget")
        if options.get("check_expiry"):
            # The number of expiring keys counts every expiring record that was read just before, unless the record has
            # been replaced or removed since.
            *replies, keyspace = await self.send([*parts, INFO_KEYSPACE], count + 1, until, budget=budget)
            if isinstance(keyspace, TableError):
                return [keyspace] * count
            expiring = not isinstance(keyspace, bytes) or self._has_expiring.search(keyspace)
            return [EXPIRY_UNKNOWN] * count if expiring else replies
        if budget is not None and budget.exceeded:
            return [NOT_READ] * count
        applied: Applied = "no"
        replies, received_bytes = [], 0
        try:
            async with asyncio.timeout_at(None if until == math.inf else until) as limit, self._semaphore:
                connection, complete = None, False
                self._in_use += 1
                try:
                    connection = await self._acquire()
                    applied = "unknown" if options.get("writes") else "no"
                    joined = parts if max(map(len, parts)) > LONG_WORD_BYTES else [b"".join(parts)]
                    received_bytes = await connection.exchange(joined, replies, count, budget)
                    # The server may have become a replica: a new connection to its host name may reach the primary.
                    last = replies[-1]
                    first = last[0] if type(last) is list and last else last
                    complete = not isinstance(first, exceptions.ReadOnlyError)
                finally:
                    self._in_use -= 1
                    if complete and connection is not None and not self._closed:
                        self._idle.append(connection)
                    elif connection is not None:
                        connection.abort()
        except BudgetExceeded:
            error: TableError = NOT_READ
        except TableError as failure:
            error = failure
        except (exceptions.RedisError, OSError) as failure:
            if limit.expired():
                error = DeadlineExceeded(f"the deadline passed before Redis{self._place} replied", applied=applied)
            else:
                error = from_connection_error(failure, applied, self._place, self._database)
                self._drop_idle()
        else:
            if received_bytes > LARGE_REPLIES_BYTES:
                # Redis serves its connections in turn, so large replies arrive together. The event loop would handle
                # all of them before it receives another request, and Redis would wait.
                async with self._turn:
                    await asyncio.sleep(0)
            return replies
        return replies + [error] * (count - len(replies))

    def connections(self) -> Connections:
        """Return the current number of connections."""
        return Connections(self._in_use, self._in_use + len(self._idle), self._connections_max)

    def close(self) -> None:
        """Close idle connections now, and connections in use when their requests end."""
        self._closed = True
        self._drop_idle()

    async def _run(
        self, commands: Sequence[Command], until: float, options: RunOptions, *, asking: bool, script_text: bool = False
    ) -> list[Reply]:
        packed, yielder = list[list[bytes]](), Yielder()
        for command in commands:
            if yielder.due:
                await yielder.maybe_yield()
            packed.append([ASKING] * asking + command.packed(script_text=script_text))
        stride = 2 if asking else 1
        calls = [
            self.send(list(chain.from_iterable(request)), stride * len(request), until, **options)
            for request in chunks_of(
                packed, REQUEST_COMMANDS_MAX, REQUEST_BYTES_MAX, lambda parts: sum(map(len, parts))
            )
        ]
        answers = await gather_bounded(calls, REQUESTS_CONCURRENCY_MAX)
        return [reply for replies in answers for reply in replies[stride - 1 :: stride]]

    async def _acquire(self) -> "NodeConnection":
        if self._closed:
            raise StoreUnavailable("the connections to Redis are closed")
        while self._idle:
            connection = self._idle.pop()
            if connection.is_reusable:
                return connection
            connection.abort()  # The server closed it, or it has unexpected data.
        connection, connected = self._make_connection(), False
        try:
            async with asyncio.timeout(self._connect_timeout_s) as limit:
                await connection.connect()
                if self._primary_only:
                    replies: list[Reply] = []
                    await connection.exchange([ROLE], replies, 1, None)
                    if isinstance(replies[0], Exception):
                        raise replies[0]
                    if replies[0][0] != b"master":
                        raise StoreUnavailable(
                            f"Redis{self._place} is a replica: the Sentinels have not finished a failover"
                        )
            connected = True
        except (exceptions.RedisError, OSError) as error:  # OSError: TimeoutError too
            if limit.expired():
                raise StoreUnavailable(
                    f"Redis{self._place} accepted no connection within {self._connect_timeout_s} s"
                ) from error
            raise from_connection_error(error, "no", self._place, self._database) from error
        finally:
            if not connected:
                connection.abort()
        return connection

    def _drop_idle(self) -> None:
        """Close idle connections: after one has broken, the others are probably broken too."""
        while self._idle:
            self._idle.pop().abort()


class BudgetExceeded(Exception):
    """The replies to a request have more bytes than its budget."""


class NodeConnection(asyncio.Protocol):
    """A connection of the driver that receives data itself once it has connected. It carries one request at a time.

    `is_reusable`: it is open, and has received only replies to its requests.
    """

    is_reusable = False
    _writer: asyncio.StreamWriter | None
    _reader: asyncio.StreamReader | None
    _parser: Any
    _complete: asyncio.Future[None] | None = None
    _received_bytes = 0

    async def connect(self) -> None:
        """Connect and authenticate by the driver."""
        await super().connect()  # type: ignore[misc]  # a method of the driver's connections
        if self._writer is None or self._writer.transport.is_closing() or await self.can_read():  # type: ignore[attr-defined]  # likewise
            raise exceptions.ConnectionError("the server closed the connection, or has sent unexpected data")
        self._new_reader()
        self.is_reusable = True
        self._writer.transport.set_protocol(self)

    async def exchange(
        self, parts: Sequence[bytes], replies: list[Reply], count: int, budget: ReadBudget | None
    ) -> int:
        """Send a request of `count` commands, and append their replies to `replies` as they arrive.

        Return their size in bytes. Raise BudgetExceeded if it is too large, and an error of the driver or OSError if
        the connection fails.
        """
        assert self._writer is not None
        self._replies, self._count, self._budget, self._received_bytes = replies, count, budget, 0
        self._complete = asyncio.get_running_loop().create_future()
        self._writer.transport.writelines(parts)
        await self._complete
        return self._received_bytes

    def data_received(self, data: bytes) -> None:
        """Append the replies that are complete."""
        if self._complete is None:
            self.is_reusable = False
            return
        self._received_bytes += len(data)
        if self._budget is not None:
            self._budget.spend(len(data))
            if self._budget.exceeded:
                self._end(BudgetExceeded())
                return
        reader, replies = self._hiredis, self._replies
        try:
            reader.feed(data)
            while len(replies) < self._count:
                if (reply := reader.gets()) is False:
                    return
                replies.append(reply)
        except exceptions.InvalidResponse as error:
            self._end(error)
            return
        self.is_reusable = not reader.has_data()
        self._end(None)

    def eof_received(self) -> None:
        """End the request: the server sends nothing more."""
        self.connection_lost(None)

    def connection_lost(self, error: Exception | None) -> None:
        """End the request."""
        self._end(error or exceptions.ConnectionError("the server closed the connection"))

    def _end(self, error: Exception | None) -> None:
        complete, self._complete = self._complete, None
        self._replies = []
        if error is not None or self._received_bytes > BUFFER_BYTES_MAX:
            self._new_reader()
        if complete is None or complete.done():  # No request, or a cancelled one.
            self.is_reusable = False
        elif error is None:
            complete.set_result(None)
        else:
            complete.set_exception(error)

    def _new_reader(self) -> None:
        self._hiredis = Reader(protocolError=exceptions.InvalidResponse, replyError=self._parser.parse_error)

    async def disconnect(self, *_: Any, **__: Any) -> None:
        """Close the connection, as the driver does after errors, without waiting for a peer that does not read."""
        self.abort()

    def abort(self) -> None:
        """Close the connection without sending the rest of its data."""
        if self._writer is not None:
            self._writer.transport.abort()
        self._writer = self._reader = None


class TcpConnection(NodeConnection, Connection):
    """A connection over TCP."""


class TlsConnection(NodeConnection, SSLConnection):
    """A connection over TLS."""
