"""Connections that end when what the server sends is not PostgreSQL's protocol.

The driver takes a message's length on trust, and with a negative one it goes round for ever within one call, which no
deadline can end. So the frame of every message is looked at before the driver sees it. Knows nothing of what messages
mean. https://www.postgresql.org/docs/current/protocol-message-formats.html
"""

import asyncio
from collections.abc import Callable
from struct import Struct
from typing import Any, cast

from asyncpg.protocol import Protocol

TYPES = frozenset(b"123ACDEGHIKNRSTVWZcdnstv")
"""The first byte of each message that a server may send."""

MESSAGE_BYTES_MAX = 2**30
"""PostgreSQL makes no longer one."""

_HEAD = Struct(">BI")


class Framing:
    """Follows the frames of a stream of messages, however it is cut."""

    def __init__(self) -> None:
        self._begun = b""
        self._left = 0

    def sound(self, data: bytes) -> bool:
        """Whether the stream is one of messages so far."""
        if self._left >= len(data):
            self._left -= len(data)
            return True
        position = self._left
        if self._begun:
            data, position = self._begun + data, 0
        while len(data) - position >= _HEAD.size:
            kind, length = _HEAD.unpack_from(data, position)
            if kind not in TYPES or not 4 <= length <= MESSAGE_BYTES_MAX:
                return False
            position += 1 + length
        self._begun, self._left = bytes(data[position:]), max(0, position - len(data))
        return True


def watched_loop() -> asyncio.AbstractEventLoop:
    """Return the running loop as the driver is to see it: what it connects is looked after."""
    return cast("asyncio.AbstractEventLoop", _Loop(asyncio.get_running_loop()))


class _Loop:
    """A loop that looks after its connections; all else is another's."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    async def create_connection(self, factory: Callable[[], Any], *place: Any, **options: Any) -> tuple[Any, Any]:
        """Connect, as the loop does."""
        return await self._watched(self._loop.create_connection, factory, *place, **options)

    async def create_unix_connection(self, factory: Callable[[], Any], *place: Any, **options: Any) -> tuple[Any, Any]:
        """Connect to a Unix socket, as the loop does."""
        return await self._watched(self._loop.create_unix_connection, factory, *place, **options)

    async def start_tls(self, transport: Any, *rest: Any, **options: Any) -> Any:
        """Go on encrypted, as the loop does."""
        return await self._loop.start_tls(getattr(transport, "plain", transport), *rest, **options)

    async def _watched(self, connect: Callable[..., Any], factory: Any, *place: Any, **options: Any) -> tuple[Any, Any]:
        made: list[Any] = []

        def watched() -> Any:
            made.append(factory())
            return _watched(made[0])

        transport, _ = await connect(watched, *place, **options)
        return _Transport(transport), made[0]


class _Transport:
    """A transport that looks after whichever protocol it is given."""

    def __init__(self, plain: Any) -> None:
        self.plain = plain

    def __getattr__(self, name: str) -> Any:
        return getattr(self.plain, name)

    def set_protocol(self, protocol: Any) -> None:
        """Hand what arrives to a protocol from now on."""
        watched = _watched(protocol)
        if isinstance(watched, _Watched):
            watched.transport = self.plain
        self.plain.set_protocol(watched)


class _Watched(asyncio.Protocol):
    """Hands everything on to the driver's protocol, until the server talks nonsense."""

    def __init__(self, driver: Protocol) -> None:
        self._driver = driver
        self._framing = Framing()
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self._driver.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self._framing.sound(data):
            self._driver.data_received(data)
        else:
            self.transport.abort()

    def eof_received(self) -> None:
        self._driver.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._driver.connection_lost(exc)

    def pause_writing(self) -> None:
        self._driver.pause_writing()

    def resume_writing(self) -> None:
        self._driver.resume_writing()


def _watched(protocol: Any) -> Any:
    return _Watched(protocol) if isinstance(protocol, Protocol) else protocol
