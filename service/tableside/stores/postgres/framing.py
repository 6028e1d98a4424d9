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

MESSAGE_TYPES = frozenset(b"123ACDEGHIKNRSTVWZcdnstv")  # those that a server may send
MESSAGE_BYTES_MAX = 2**30  # PostgreSQL sends no longer message

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
        connection = self.wrapped.create_connection(lambda: _with_frame_check(factory()), *address, **options)
        transport, protocol = await connection
        return _FrameCheckingTransport(transport), protocol

    async def create_unix_connection(self, factory: Callable[[], Any], *path: Any, **options: Any) -> Any:
        return await self.wrapped.create_unix_connection(lambda: _with_frame_check(factory()), *path, **options)

    async def start_tls(self, transport: _Proxy, *rest: Any, **options: Any) -> _Proxy | None:
        encrypted = await self.wrapped.start_tls(transport.wrapped, *rest, **options)
        return encrypted and _FrameCheckingTransport(encrypted)


class _FrameCheckingTransport(_Proxy):
    """Checks the frames that another protocol receives, if it is the driver's."""

    def set_protocol(self, protocol: Any) -> None:
        self.wrapped.set_protocol(_with_frame_check(protocol))


def _with_frame_check(protocol: Any) -> Any:
    """Let the driver's protocol abort its connection at the first invalid frame. Return the protocol."""
    driver: Any = protocol
    if isinstance(protocol, Protocol):
        frames, receive = MessageFrames(), protocol.data_received

        def data_received(data: bytes) -> None:
            if frames.accepts(data):
                receive(data)
            else:
                protocol.abort()

        driver.data_received = data_received
    return protocol
