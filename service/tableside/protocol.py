"""HTTP/1.1 on a connection: an answer leaves in one piece, and what cannot be read as a request is a problem too.

Knows nothing of the application.
"""

import asyncio
import uuid
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from .errors import MalformedRequest
from .wire import problems

JOINED_BYTES_MAX = 65_536
"""Longer pieces are not copied to be sent together with what is before them."""


class Protocol(HttpToolsProtocol):
    """uvicorn's protocol, which would send head and body apart, and its own refusal as plain text."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Take a new connection."""
        super().connection_made(cast("asyncio.Transport", Joined(transport)))

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP and end the connection."""
        body = problems.encode(MalformedRequest("the request is not HTTP/1.1 that can be read"))
        head = [
            b"HTTP/1.1 400 Bad Request",
            b"content-type: " + problems.MEDIA_TYPE.encode(),
            b"content-length: %d" % len(body),
            b"x-request-id: " + uuid.uuid4().hex.encode(),
            b"connection: close",
        ]
        self.transport.write(b"\r\n".join(head) + b"\r\n\r\n" + body)
        self.transport.close()


class Joined:
    """A transport that sends together what is written within one turn of the loop: half the calls and packets."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._pieces: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send bytes, at the latest when the loop turns."""
        if len(data) > JOINED_BYTES_MAX:
            self._flush()
            self._transport.write(data)
            return
        if not self._pieces:
            self._loop.call_soon(self._flush)
        self._pieces.append(data)

    def close(self) -> None:
        """Send what was written, then close."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._pieces:
            data, self._pieces = b"".join(self._pieces), []
            self._transport.write(data)
