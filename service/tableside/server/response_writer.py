"""Responses as bytes: a head is sent in one write with its body, and a large body over TLS in pieces."""

import asyncio
from collections.abc import Iterable
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from ..http.wire import problems
from .slow_readers import Reader

JOINED_BYTES_MAX = 65_536
"""Longer bodies are not copied to be sent together with the head."""

PIECE_BYTES = 131_072

COMMON_HEADERS = ((b"cache-control", b"no-cache"), (b"x-content-type-options", b"nosniff"))
"""The headers of every response that does not set them. A cache has to ask the service even whether a record is absent,
and a browser does not take a response for a page.
"""


class HeadJoiner:
    """A transport that sends a response's head together with the first part of its body.

    Set `hold` before the head is written.
    """

    def __init__(self, transport: asyncio.WriteTransport) -> None:
        self._transport = transport
        self._head = b""
        self.hold = False
        self.close = transport.close
        self.is_closing = transport.is_closing

    def write(self, data: bytes | memoryview) -> None:
        """Keep a head, or send a body after the head that was kept."""
        if self.hold:
            self._head, self.hold = bytes(data), False
            return
        if self._head:
            head, self._head = self._head, b""
            if len(data) <= JOINED_BYTES_MAX:
                data = head + data
            else:
                self._transport.write(head)
        self._transport.write(data)


class Cycle(RequestResponseCycle):
    """One request and its response."""

    joiner: HeadJoiner
    reader: Reader

    async def send(self, message: Any) -> None:
        """Send the head or a part of the body."""
        if message["type"] == "http.response.start":
            if self.waiting_for_100_continue:
                self.keep_alive = False  # The client may or may not send the body that it was not asked for.
            headers = message["headers"]
            names = {name for name, _ in headers}
            headers = [*headers, *(header for header in COMMON_HEADERS if header[0] not in names)]
            message = {**message, "headers": headers}
            self.joiner.hold = self.scope["method"] != "HEAD"
        elif len(message.get("body", b"")) > PIECE_BYTES and self.scope["scheme"] == "https":
            message = await self._send_pieces(message)
        await super().send(message)

    async def _send_pieces(self, message: dict[str, Any]) -> dict[str, Any]:
        """Send all but the last piece of a body, each when nearly all before it was read. Return the last piece.

        A TLS transport encrypts all bytes at once, passes them to the transport below, and then reports that none are
        unread, so slow clients would not be noticed.
        """
        body = memoryview(message["body"])
        try:
            while len(body) > PIECE_BYTES and not self.disconnected:
                self.reader.queued_bytes = len(body)
                piece: Any = {**message, "body": body[:PIECE_BYTES], "more_body": True}
                await super().send(piece)
                body = body[PIECE_BYTES:]
            self.reader.queued_bytes = len(body)
            await self.flow.drain()
        finally:
            self.reader.queued_bytes = 0
        return {**message, "body": body}


def problem_response(
    status: int, body: bytes, headers: Iterable[tuple[bytes, bytes]], *, close: bool, head_only: bool = False
) -> bytes:
    """Return the bytes of a response with problem details, which no application has made."""
    given = (
        *headers,
        (b"content-type", problems.MEDIA_TYPE.encode()),
        (b"content-length", b"%d" % len(body)),
        *COMMON_HEADERS,
        *(((b"connection", b"close"),) if close else ()),
    )
    lines = b"".join(b"%b: %b\r\n" % header for header in given)
    return STATUS_LINE[status] + lines + b"\r\n" + (b"" if head_only else body)
