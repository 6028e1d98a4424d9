"""Connections to Redis: the driver connects and authenticates, then requests and replies are exchanged without it.

The driver reads each reply from a stream by several coroutines, which copy its bytes. Here replies are parsed as they
arrive.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias, cast

from hiredis import Reader
from redis import exceptions
from redis.asyncio.connection import Connection, SSLConnection, UnixDomainSocketConnection

from ...core import ReadBudget

Reply: TypeAlias = Any
"""A reply of the server. Error replies are exceptions of the driver. A TableError means that no reply arrived."""

BUFFER_BYTES_MAX = 2**20
"""A parser keeps a buffer of the size of the replies until the next ones arrive. Larger buffers are freed before."""


class BudgetExceeded(Exception):
    """The replies to a request have more bytes than its budget."""


class NodeConnection(Protocol):
    """A connection, which carries one request at a time."""

    async def connect(self) -> None:
        """Connect and authenticate."""
        ...

    @property
    def is_reusable(self) -> bool:
        """Whether the connection is open, and has received only replies to its requests."""
        ...

    async def exchange(
        self, parts: Sequence[bytes], replies: list[Reply], count: int, budget: ReadBudget | None
    ) -> None:
        """Send a request of `count` commands, and append their replies to `replies` as they arrive.

        Raise BudgetExceeded if they have too many bytes, and an error of the driver or OSError if the connection fails.
        """
        ...

    def abort(self) -> None:
        """Close the connection without sending the rest of its data."""
        ...


class ReplyReceiver(asyncio.Protocol):
    """Parses the replies to one request at a time."""

    def __init__(self, make_parser: Callable[[], Reader]) -> None:
        self.is_reusable = True
        self._make_parser = make_parser
        self._parser = make_parser()
        self._loop = asyncio.get_running_loop()
        self._complete: asyncio.Future[None] | None = None
        self._replies: list[Reply] = []
        self._count = 0
        self._budget: ReadBudget | None = None
        self._received_bytes = 0

    def expect(self, replies: list[Reply], count: int, budget: ReadBudget | None) -> asyncio.Future[None]:
        """Return a future that is done when `count` replies have been appended, or the connection has failed."""
        self._replies, self._count, self._budget, self._received_bytes = replies, count, budget, 0
        self._complete = self._loop.create_future()
        return self._complete

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
        parser, replies = self._parser, self._replies
        try:
            parser.feed(data)
            while len(replies) < self._count:
                if (reply := parser.gets()) is False:
                    return
                replies.append(reply)
        except exceptions.InvalidResponse as error:
            self._end(error)
            return
        self.is_reusable = not parser.has_data()
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
            self._parser = self._make_parser()
        if complete is None or complete.done():  # No request, or a cancelled one.
            self.is_reusable = False
        elif error is None:
            complete.set_result(None)
        else:
            complete.set_exception(error)


class _ExchangeMixin:
    """Replaces the driver's streams once it has connected."""

    _writer: asyncio.StreamWriter | None
    _reader: asyncio.StreamReader | None
    _parser: Any
    _receiver: ReplyReceiver | None = None

    async def connect(self) -> None:
        """Connect and authenticate by the driver."""
        await super().connect()  # type: ignore[misc]  # a method of the driver's connections
        if self._writer is None or self._writer.transport.is_closing() or await self.can_read():  # type: ignore[attr-defined]  # likewise
            raise exceptions.ConnectionError("the server closed the connection, or has sent unexpected data")
        self._receiver = ReplyReceiver(self._new_parser)
        self._writer.transport.set_protocol(self._receiver)

    @property
    def is_reusable(self) -> bool:
        """Whether the connection is open, and has received only replies to its requests."""
        return self._receiver is not None and self._receiver.is_reusable

    async def exchange(
        self, parts: Sequence[bytes], replies: list[Reply], count: int, budget: ReadBudget | None
    ) -> None:
        """Send a request, and append its replies to `replies`."""
        assert self._writer is not None
        assert self._receiver is not None
        complete = self._receiver.expect(replies, count, budget)
        self._writer.transport.writelines(parts)
        await complete

    async def disconnect(self, *_: Any, **__: Any) -> None:
        """Close the connection, as the driver does after errors, without waiting for a peer that does not read."""
        self.abort()

    def abort(self) -> None:
        """Close the connection now."""
        if self._writer is not None:
            self._writer.transport.abort()
        self._writer = self._reader = None

    def _new_parser(self) -> Reader:
        return Reader(protocolError=exceptions.InvalidResponse, replyError=self._parser.parse_error)


class _TcpConnection(_ExchangeMixin, Connection):
    """A connection over TCP."""


class _TlsConnection(_ExchangeMixin, SSLConnection):
    """A connection over TLS."""


class _UnixConnection(_ExchangeMixin, UnixDomainSocketConnection):
    """A connection over a Unix socket."""


def connection_type(connection_class: type[Any] | None) -> Callable[..., NodeConnection]:
    """Return our subclass of the connection class that the driver chose for a URL."""
    kinds = {None: _TcpConnection, SSLConnection: _TlsConnection, UnixDomainSocketConnection: _UnixConnection}
    return cast("Callable[..., NodeConnection]", kinds[connection_class])
