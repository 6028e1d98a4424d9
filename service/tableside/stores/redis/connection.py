"""One Redis node: a bounded pool of connections, and requests of several commands in one round trip each.

A connection carries one request at a time. It is reused only if all replies to the request have arrived, so a reply is
never used as the reply to another request.
"""

import asyncio
import re
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from itertools import chain
from typing import Any, TypeAlias

from redis import exceptions

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
    run_until,
)
from .driver import BudgetExceeded, NodeConnection, Reply
from .errors import from_connection_error
from .scripts import LONG_WORD_BYTES, Command

Send: TypeAlias = Callable[[list[bytes], int], Coroutine[Any, Any, list[Reply]]]
"""Sends the bytes of one request, in parts, and returns as many replies."""

EXPIRY_UNKNOWN = object()
"""Replaces a reply without expiries if the database has expiring keys."""

INFO_KEYSPACE = b"*2\r\n$4\r\nINFO\r\n$8\r\nkeyspace\r\n"

REQUEST_COMMANDS_MAX = 1000
REQUEST_BYTES_MAX = 2**20
REQUESTS_CONCURRENCY_MAX = 4
"""How many requests of one call to a node run concurrently."""

ROLE = b"*1\r\n$4\r\nROLE\r\n"
ASKING = b"*1\r\n$6\r\nASKING\r\n"


class Node:
    """One server and its connection pool.

    `place` follows "Redis" in the messages of errors, if the address is not in the settings. With `primary_only`, a
    connection to a replica is an error.
    """

    def __init__(
        self,
        make_connection: Callable[[], NodeConnection],
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
        self._in_use = 0
        self._idle: list[NodeConnection] = []
        self._closed = False

    async def run(
        self,
        commands: Sequence[Command],
        until: float,
        *,
        writes: bool = False,
        asking: bool = False,
        budget: ReadBudget | None = None,
    ) -> list[Reply]:
        """Send commands, several in a request, and return the reply to each.

        With `writes`, commands without a reply may have been applied. With `asking`, the node accepts commands for a
        slot that it is importing. Commands whose replies exceed the `budget` return NOT_READ.
        """
        send = partial(self.send, until=until, writes=writes, budget=budget)
        if len(commands) == 1 and not asking:  # A call for single operations: most calls.
            replies = await send(commands[0].packed(), 1)
        else:
            replies = await self._run(commands, send, asking=asking)
        not_loaded = [index for index, reply in enumerate(replies) if isinstance(reply, exceptions.NoScriptError)]
        if not_loaded:  # The server has restarted and lost its scripts. It has not run these commands.
            retried = [commands[index] for index in not_loaded]
            for index, reply in zip(
                not_loaded, await self._run(retried, send, asking=asking, script_text=True), strict=True
            ):
                replies[index] = reply
        return replies

    async def read(
        self, commands: Sequence[Command], until: float, *, asking: bool = False, budget: ReadBudget | None = None
    ) -> list[Reply]:
        """Send commands that read values and return the replies, or EXPIRY_UNKNOWN if keys of the database expire.

        Each request ends with a query for the number of expiring keys. It counts every expiring record that was read
        just before, unless the record has been replaced or removed since.
        """
        send = partial(self.send, until=until, budget=budget)
        requests = [self._read(request, send, asking) for request in chunks_of(commands, REQUEST_COMMANDS_MAX)]
        return [reply for replies in await gather_bounded(requests, REQUESTS_CONCURRENCY_MAX) for reply in replies]

    async def send(
        self, parts: list[bytes], count: int, until: float, *, writes: bool = False, budget: ReadBudget | None = None
    ) -> list[Reply]:
        """Send one request and return its `count` replies. Stop receiving, with NOT_READ, if they exceed the budget."""
        if budget is not None and budget.exceeded:
            return [NOT_READ] * count
        applied: Applied = "no"
        error: TableError | None = None
        replies: list[Reply] = []

        async def exchange() -> None:
            nonlocal applied, error
            try:
                async with self._semaphore:
                    connection, complete = None, False
                    self._in_use += 1
                    try:
                        connection = await self._acquire()
                        applied = "unknown" if writes else "no"
                        await connection.exchange(_joined(parts), replies, count, budget)
                        complete = not _is_demoted(replies)
                    finally:
                        self._release(connection, reusable=complete)
            except BudgetExceeded:
                error = NOT_READ
            except TableError as failure:
                error = failure
            except (exceptions.RedisError, OSError) as failure:
                error = from_connection_error(failure, applied, self._place, self._database)
                self._drop_idle()

        try:
            await run_until(exchange(), until)
        except TimeoutError:
            error = DeadlineExceeded(f"the deadline passed before Redis{self._place} replied", applied=applied)
        return replies if error is None else replies + [error] * (count - len(replies))

    def connections(self) -> Connections:
        """Return the current number of connections."""
        return Connections(self._in_use, self._in_use + len(self._idle), self._connections_max)

    def close(self) -> None:
        """Close idle connections now, and connections in use when their requests end."""
        self._closed = True
        self._drop_idle()

    async def _run(
        self, commands: Sequence[Command], send: Send, *, asking: bool, script_text: bool = False
    ) -> list[Reply]:
        packed, yielder = list[list[bytes]](), Yielder()
        for command in commands:
            if yielder.due:
                await yielder.maybe_yield()
            packed.append([ASKING] * asking + command.packed(script_text=script_text))
        requests = list(chunks_of(packed, REQUEST_COMMANDS_MAX, REQUEST_BYTES_MAX, _bytes))
        stride = 2 if asking else 1
        calls = [send(list(chain.from_iterable(request)), stride * len(request)) for request in requests]
        answers = await gather_bounded(calls, REQUESTS_CONCURRENCY_MAX)
        return [reply for replies in answers for reply in replies[stride - 1 :: stride]]

    async def _read(self, commands: Sequence[Command], send: Send, asking: bool) -> list[Reply]:
        prefix, stride = ([ASKING], 2) if asking else ([], 1)
        packed = [part for command in commands for part in prefix + command.packed()]
        *replies, keyspace = await send([*packed, INFO_KEYSPACE], stride * len(commands) + 1)
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
            if connection.is_reusable:
                return connection
            connection.abort()  # The server closed it, or it has unexpected data.
        connection, connected = self._make_connection(), False
        try:
            async with asyncio.timeout(self._connect_timeout_s) as limit:
                await connection.connect()
                await self._check_role(connection)
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

    async def _check_role(self, connection: NodeConnection) -> None:
        if not self._primary_only:
            return
        replies: list[Reply] = []
        await connection.exchange([ROLE], replies, 1, None)
        if isinstance(replies[0], Exception):
            raise replies[0]
        if replies[0][0] != b"master":
            raise StoreUnavailable(f"Redis{self._place} is a replica: the Sentinels have not finished a failover")

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


def _bytes(parts: Sequence[bytes]) -> int:
    return sum(map(len, parts))


def _joined(parts: list[bytes]) -> list[bytes]:
    """Return the parts as one, unless one is long."""
    return parts if max(map(len, parts)) > LONG_WORD_BYTES else [b"".join(parts)]
