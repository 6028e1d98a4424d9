"""The driver's connections, changed so that they close immediately and count the bytes of replies."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

from redis import exceptions
from redis._parsers import _AsyncHiredisParser
from redis.asyncio.connection import Connection, SSLConnection, UnixDomainSocketConnection

from ...core import ReadBudget


class NodeConnection(Protocol):
    """A connection of the driver that can be closed immediately."""

    async def connect(self) -> None:
        """Connect and authenticate."""
        ...

    async def send_packed_command(self, command: Sequence[bytes], check_health: bool = True) -> None:
        """Send bytes that contain complete commands."""
        ...

    async def read_response(self, *, disconnect_on_error: bool = True) -> Any:
        """Return the next reply, or raise it if it is an error reply."""
        ...

    def count_replies(self, budget: ReadBudget | None) -> None:
        """Count the bytes of the next replies. Reading raises BudgetExceeded if they are too many."""
        ...

    def free_buffer(self) -> None:
        """Free the buffer of the received replies, if they were large. No reply may be expected."""
        ...

    async def can_read(self) -> bool:
        """Whether the connection was closed, or has unexpected data."""
        ...

    def abort(self) -> None:
        """Close the connection without sending the rest of its data."""
        ...


BUFFER_BYTES_MAX = 2**20
"""The parser keeps a buffer of the size of the replies until the next ones arrive. Larger buffers are freed before."""


class BudgetExceeded(Exception):
    """The replies to a call have more bytes than its budget."""


class CountingParser(_AsyncHiredisParser):
    """The driver's parser, which also counts the bytes that it receives."""

    budget: ReadBudget | None = None
    received_bytes = 0
    _stream: Any
    _reader: Any

    async def read_from_socket(self) -> bool:
        """Read some bytes. Raise BudgetExceeded if the call has received more than its budget."""
        received = await self._stream.read(self._read_size)
        if not received:
            raise exceptions.ConnectionError("the server closed the connection")
        self.received_bytes += len(received)
        if self.budget is not None:
            self.budget.spend(len(received))
            if self.budget.exceeded:
                self._reader = None  # frees the replies: the connection will be closed
                raise BudgetExceeded
        self._reader.feed(received)
        return True


class _AbortMixin:
    _writer: asyncio.StreamWriter | None
    _reader: asyncio.StreamReader | None
    _parser: Any

    def count_replies(self, budget: ReadBudget | None) -> None:
        """Count the bytes of the next replies."""
        self._parser.budget, self._parser.received_bytes = budget, 0

    def free_buffer(self) -> None:
        """Replace the parser's reader, which has the buffer."""
        if self._parser.received_bytes > BUFFER_BYTES_MAX:
            self._parser.on_connect(self)

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
