"""Writes responses: a head together with its body in one write, and a large body over TLS in pieces."""

import asyncio
from collections.abc import Iterable
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from ..http.wire import problems
from .slow_readers import ReadProgress

JOINED_BYTES_MAX = 65_536
"""Longer bodies are not copied to be sent together with the head."""

PIECE_BYTES = 131_072

COMMON_HEADERS = {
    b"cache-control": b"cache-control: no-cache",
    b"x-content-type-options": b"x-content-type-options: nosniff",
}
"""The header lines of every response that does not set them. A cache has to ask the service even whether a record is
absent, and a browser does not take a response for a page.
"""

_CONTROL_CHARACTERS = bytes({*range(32), 127} - {9})


class HeadJoiner:
    """A transport that sends `head`, once it is set, together with the first part of the body."""

    def __init__(self, transport: asyncio.WriteTransport) -> None:
        self._transport = transport
        self.head = b""
        self.close = transport.close
        self.is_closing = transport.is_closing

    def write(self, data: bytes | memoryview) -> None:
        """Send bytes, after the head if it is not sent yet."""
        if self.head:
            head, self.head = self.head, b""
            if len(data) <= JOINED_BYTES_MAX:
                data = head + data
            else:
                self._transport.write(head)
        self._transport.write(data)


class RequestCycle(RequestResponseCycle):
    """One request and its response."""

    encrypted: bool
    joiner: HeadJoiner
    read_progress: ReadProgress

    async def send(self, message: Any) -> None:
        """Send the head or a part of the body."""
        if message["type"] == "http.response.start" and not self.response_started:
            if self.waiting_for_100_continue:
                self.keep_alive = False  # The client may or may not send the body that it was not asked for.
            self.joiner.head = self._encode_head(message["status"], message["headers"])
            self.response_started, self.waiting_for_100_continue = True, False
            if self.scope["method"] == "HEAD":
                self.joiner.write(b"")
            return
        if self.encrypted and len(message.get("body", b"")) > PIECE_BYTES:
            message = await self._send_pieces(message)
        await super().send(message)

    def _encode_head(self, status: int, headers: list[tuple[bytes, bytes]]) -> bytes:
        """Return the bytes of a head. uvicorn's own way takes several times as long."""
        lines, common = [], COMMON_HEADERS
        for name, value in (*self.default_headers, *headers):
            name = name.lower()
            if name == b"content-length":
                self.chunked_encoding, self.expected_content_length = False, int(value)
            elif name == b"connection" and value == b"close":
                self.keep_alive = False
                continue
            elif name in common:
                common = {other: line for other, line in common.items() if other != name}
            lines.append(name + b": " + value)
        lines += common.values()
        if self.chunked_encoding is None and status not in (204, 304) and self.scope["method"] != "HEAD":
            self.chunked_encoding = True
            lines.append(b"transfer-encoding: chunked")
        if not self.keep_alive:
            lines.append(b"connection: close")
        head = b"\r\n".join(lines)
        if len(head) - len(head.translate(None, _CONTROL_CHARACTERS)) != 2 * (len(lines) - 1):
            raise RuntimeError("a response header contains a control character")
        return STATUS_LINE[status] + head + b"\r\n\r\n"

    async def _send_pieces(self, message: dict[str, Any]) -> dict[str, Any]:
        """Send all but the last piece of a body, each when nearly all before it was read. Return the last piece.

        A TLS transport encrypts all bytes at once, passes them to the transport below, and then reports that none are
        unread, so slow clients would not be noticed.
        """
        body = memoryview(message["body"])
        try:
            while len(body) > PIECE_BYTES and not self.disconnected:
                self.read_progress.queued_bytes = len(body)
                piece: Any = {**message, "body": body[:PIECE_BYTES], "more_body": True}
                await super().send(piece)
                body = body[PIECE_BYTES:]
            self.read_progress.queued_bytes = len(body)
            await self.flow.drain()
        finally:
            self.read_progress.queued_bytes = 0
        return {**message, "body": body}


def problem_response(
    status: int, body: bytes, headers: Iterable[tuple[bytes, bytes]], *, close: bool, head_only: bool = False
) -> bytes:
    """Return the bytes of a response with problem details that the server itself sends."""
    lines = [
        *(name + b": " + value for name, value in headers),
        b"content-type: " + problems.MEDIA_TYPE.encode(),
        b"content-length: %d" % len(body),
        *COMMON_HEADERS.values(),
        *((b"connection: close",) if close else ()),
    ]
    return STATUS_LINE[status] + b"\r\n".join(lines) + b"\r\n\r\n" + (b"" if head_only else body)
