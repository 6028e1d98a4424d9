"""Checks the frame of each message that a server sends, and closes connections that break PostgreSQL's protocol.

The driver trusts a message's length. A negative length sends it into an endless loop within one call, which no deadline
can end. This module therefore checks the type and length of every message before the driver reads it.
https://www.postgresql.org/docs/current/protocol-message-formats.html
"""

import asyncio
from collections.abc import Callable
from struct import Struct
from typing import Any, cast

from asyncpg.protocol import Protocol

MESSAGE_TYPES = frozenset(b"123ACDEGHIKNRSTVWZcdnstv")
"""The type bytes of the messages that a server may send."""

MESSAGE_BYTES_MAX = 2**30
"""PostgreSQL sends no longer message."""

_HEADER = Struct(">BI")


class MessageFrames:
    """Parses the frames of a message stream that arrives in chunks of any size."""

    def __init__(self) -> None:
        self._partial = b""
        self._remaining_bytes = 0

    def accepts(self, data: bytes) -> bool:
        """Return whether the stream consists of valid frames so far."""
        if self._remaining_bytes >= len(data):
            self._remaining_bytes -= len(data)
            return True
        position = self._remaining_bytes
        if self._partial:
            data, position = self._partial + data, 0
        while len(data) - position >= _HEADER.size:
            kind, length = _HEADER.unpack_from(data, position)
            if kind not in MESSAGE_TYPES or not 4 <= length <= MESSAGE_BYTES_MAX:
                return False
            position += 1 + length
        self._partial, self._remaining_bytes = bytes(data[position:]), max(0, position - len(data))
        return True


def frame_checking_loop() -> asyncio.AbstractEventLoop:
    """Return a proxy of the running loop for the driver. Connections made through it have their frames checked."""
    return cast("asyncio.AbstractEventLoop", _FrameCheckingLoop(asyncio.get_running_loop()))


class _Proxy:
    """Passes on every attribute that it does not define."""

    def __init__(self, wrapped: Any) -> None:
        self.wrapped = wrapped

    def __getattr__(self, name: str) -> Any:
        return getattr(self.wrapped, name)


class _FrameCheckingLoop(_Proxy):
    """Connects as the wrapped loop does, and checks the frames that the driver's protocols receive."""

    async def create_connection(self, factory: Callable[[], Any], *address: Any, **options: Any) -> tuple[Any, Any]:
        return await self._connect(self.wrapped.create_connection, factory, *address, **options)

    async def create_unix_connection(self, factory: Callable[[], Any], *path: Any, **options: Any) -> tuple[Any, Any]:
        return await self._connect(self.wrapped.create_unix_connection, factory, *path, **options)

    async def start_tls(self, transport: _Proxy, *rest: Any, **options: Any) -> _Proxy | None:
        encrypted = await self.wrapped.start_tls(transport.wrapped, *rest, **options)
        return encrypted and _FrameCheckingTransport(encrypted)

    async def _connect(
        self, connect: Callable[..., Any], factory: Callable[[], Any], *address: Any, **options: Any
    ) -> tuple[Any, Any]:
        transport, protocol = await connect(lambda: _with_frame_check(factory()), *address, **options)
        return _FrameCheckingTransport(transport), getattr(protocol, "wrapped", protocol)


class _FrameCheckingTransport(_Proxy):
    """Checks the frames that another protocol receives, if it is the driver's."""

    def set_protocol(self, protocol: Any) -> None:
        checked = _with_frame_check(protocol)
        checked.transport = self.wrapped
        self.wrapped.set_protocol(checked)


class _FrameCheckingProtocol(_Proxy):
    """Passes events to the driver's protocol, and aborts the connection at the first invalid frame."""

    transport: Any = None

    def __init__(self, wrapped: Protocol) -> None:
        super().__init__(wrapped)
        self._frames = MessageFrames()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.wrapped.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self._frames.accepts(data):
            self.wrapped.data_received(data)
        else:
            self.transport.abort()


def _with_frame_check(protocol: Any) -> Any:
    return _FrameCheckingProtocol(protocol) if isinstance(protocol, Protocol) else protocol
