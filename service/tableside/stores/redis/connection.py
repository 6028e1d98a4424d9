"""One Redis server: a bounded number of connections to it, and requests of several commands in one round trip each.

A connection carries one request at a time. Unless every answer to it has arrived the connection is thrown away, so
answers can never be taken for those to another request. Knows nothing of records.
"""

import asyncio
import math
import re
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias, cast

from redis import exceptions
from redis.asyncio.connection import Connection, SSLConnection, UnixDomainSocketConnection

from ...core import Applied, Connections, DeadlineExceeded, StoreUnavailable, TableError, chunks_of, gather_bounded
from .errors import broken
from .scripts import Command

Reply: TypeAlias = Any
"""What the server answered, an error reply as an exception; a TableError where it did not answer."""

EXPIRING = object()
"""In place of a reply that does not tell when records expire, from a database where some do."""

CENSUS = b"*2\r\n$4\r\nINFO\r\n$8\r\nkeyspace\r\n"

READ_BYTES = 256 * 2**10
"""How much is taken from a socket at once: large batches arrive in fewer pieces."""

REQUEST_COMMANDS_MAX = 1000
REQUEST_BYTES_MAX = 4 * 2**20
REQUESTS_AT_ONCE = 4
"""How many requests of one call are under way at once, to one node."""

ASKING = b"*1\r\n$6\r\nASKING\r\n"


class Link(Protocol):
    """A connection of the driver that can be given up at once."""

    async def connect(self) -> None:
        """Connect and authenticate."""
        ...

    async def send_packed_command(self, command: bytes, check_health: bool = True) -> None:
        """Send."""
        ...

    async def read_response(self, *, disconnect_on_error: bool = True) -> Any:
        """Return the next answer, or raise the error that it is."""
        ...

    async def can_read(self) -> bool:
        """Whether the connection was closed, or something has arrived that nobody asked for."""
        ...

    def abort(self) -> None:
        """Close the connection, without waiting for what is still to be sent."""
        ...


class _Abortable:
    _writer: asyncio.StreamWriter | None
    _reader: asyncio.StreamReader | None

    async def disconnect(self, *_: Any, **__: Any) -> None:
        """Do what the driver does when something fails, without waiting for a peer that does not read."""
        self.abort()

    def abort(self) -> None:
        """Close the connection now."""
        if self._writer is not None:
            self._writer.transport.abort()
        self._writer = self._reader = None


class _Plain(_Abortable, Connection):
    """A connection over TCP."""


class _Encrypted(_Abortable, SSLConnection):
    """A connection over TLS."""


class _Local(_Abortable, UnixDomainSocketConnection):
    """A connection over a Unix socket."""


def link_type(connection_class: type[Any] | None) -> Callable[..., Link]:
    """Return what makes connections of the kind that the driver read from a URL."""
    kinds = {None: _Plain, SSLConnection: _Encrypted, UnixDomainSocketConnection: _Local}
    return cast("Callable[..., Link]", kinds[connection_class])


class Node:
    """One server, and the connections to it."""

    def __init__(
        self, make_link: Callable[[], Link], database: int, connections_max: int, connect_timeout_s: float
    ) -> None:
        self._make_link = make_link
        self._expires = re.compile(rb"db%d:keys=\d+,expires=([1-9])" % database)
        self._connect_timeout_s = connect_timeout_s
        self._connections_max = connections_max
        self._free = asyncio.Semaphore(connections_max)
        self._in_use = 0
        self._idle: list[Link] = []
        self._closed = False

    async def run(
        self, commands: Sequence[Command], until: float, *, writes: bool, asking: bool = False
    ) -> list[Reply]:
        """Send commands, several in a request, and return the reply to each.

        `writes` says that a command that was sent and not answered may have changed something; `asking` that the node
        may answer for a slot that it is taking over.
        """
        replies = await self._run(commands, until, writes=writes, asking=asking)
        unknown = [index for index, reply in enumerate(replies) if isinstance(reply, exceptions.NoScriptError)]
        if unknown:  # The server was started again, and knows no scripts: these were not run.
            again = [commands[index] for index in unknown]
            for index, reply in zip(
                unknown, await self._run(again, until, writes=writes, asking=asking, whole=True), strict=True
            ):
                replies[index] = reply
        return replies

    async def read(self, commands: Sequence[Command], until: float, *, asking: bool = False) -> list[Reply]:
        """Send commands that read values and return the replies, or EXPIRING where those do not tell everything.

        Each request ends by asking how many keys of the database expire: a record that was read just before and that
        did expire is counted, unless it has been replaced or removed since.
        """
        works = [self._read(request, until, asking) for request in chunks_of(commands, REQUEST_COMMANDS_MAX)]
        return [reply for replies in await gather_bounded(works, REQUESTS_AT_ONCE) for reply in replies]

    async def ask(self, packed: bytes, count: int, until: float, *, writes: bool = False) -> list[Reply]:
        """Send one request and return its `count` replies."""
        applied: Applied = "no"
        replies: list[Reply] = []
        try:
            async with asyncio.timeout_at(None if until == math.inf else until) as limit, self._free:
                link, complete = None, False
                self._in_use += 1
                try:
                    link = await self._link()
                    applied = "unknown" if writes else "no"
                    await link.send_packed_command(packed, check_health=False)
                    for _ in range(count):
                        replies.append(await _reply(link))  # noqa: PERF401  # those that came count if one does not
                    complete = not _demoted(replies)
                finally:
                    self._give_back(link, sound=complete)
        except TableError as failure:
            error = failure
        except (exceptions.RedisError, OSError) as failure:  # OSError: TimeoutError too
            if limit.expired():
                error = DeadlineExceeded("the deadline was over before Redis answered", applied=applied)
            else:
                error = broken(failure, applied)
                self._drop_idle()
        else:
            return replies
        return replies + [error] * (count - len(replies))

    def connections(self) -> Connections:
        """Return how many connections there are now."""
        return Connections(self._in_use, self._in_use + len(self._idle), self._connections_max)

    def close(self) -> None:
        """Let go of the connections; those in use are closed when their requests end."""
        self._closed = True
        self._drop_idle()

    async def _run(
        self, commands: Sequence[Command], until: float, *, writes: bool, asking: bool, whole: bool = False
    ) -> list[Reply]:
        packed = [command.packed(whole=whole) for command in commands]
        if asking:
            packed = [ASKING + one for one in packed]
        requests = list(chunks_of(packed, REQUEST_COMMANDS_MAX, REQUEST_BYTES_MAX, len))
        each = 2 if asking else 1
        works = [self.ask(b"".join(request), each * len(request), until, writes=writes) for request in requests]
        return [
            reply for replies in await gather_bounded(works, REQUESTS_AT_ONCE) for reply in replies[each - 1 :: each]
        ]

    async def _read(self, commands: Sequence[Command], until: float, asking: bool) -> list[Reply]:
        before, each = (ASKING, 2) if asking else (b"", 1)
        packed = b"".join([before + command.packed() for command in commands])
        *replies, census = await self.ask(packed + CENSUS, each * len(commands) + 1, until)
        if isinstance(census, TableError):
            return [census] * len(commands)
        if isinstance(census, bytes) and not self._expires.search(census):
            return replies[each - 1 :: each]
        return [EXPIRING] * len(commands)

    async def _link(self) -> Link:
        if self._closed:
            raise StoreUnavailable("the connections to Redis are closed")
        while self._idle:
            link = self._idle.pop()
            if not await link.can_read():
                return link
            link.abort()  # The server closed it, or it holds what nobody asked for.
        link, sound = self._make_link(), False
        try:
            async with asyncio.timeout(self._connect_timeout_s) as limit:
                await link.connect()
            sound = True
        except (exceptions.RedisError, OSError) as error:  # OSError: TimeoutError too
            if limit.expired():
                raise StoreUnavailable(f"Redis took no connection within {self._connect_timeout_s} s") from error
            raise broken(error, "no") from error
        finally:
            if not sound:
                link.abort()
        return link

    def _drop_idle(self) -> None:
        """Let go of connections that are likely to be as broken as another was."""
        while self._idle:
            self._idle.pop().abort()

    def _give_back(self, link: Link | None, *, sound: bool) -> None:
        self._in_use -= 1
        if link is None:
            return
        if sound and not self._closed:
            self._idle.append(link)
        else:
            link.abort()


def _demoted(replies: Sequence[Reply]) -> bool:
    """Whether the server is a primary no longer: under the same name a new connection may find the one that is."""
    last = replies[-1]
    return isinstance(last[0] if type(last) is list and last else last, exceptions.ReadOnlyError)


async def _reply(link: Link) -> Reply:
    try:
        return await link.read_response(disconnect_on_error=False)
    except exceptions.ResponseError as error:
        return error
    except (exceptions.AuthenticationError, exceptions.BusyLoadingError) as error:
        return error  # Replies too, though the driver takes them for broken connections.
