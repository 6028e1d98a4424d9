"""One request and its response, as an application receives and sends them."""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import unquote

from starlette.types import ASGIApp, Message, Scope
from uvicorn.server import ServerState

from ..core import TableError
from ..http import SCOPE_KEY, ProblemResponse, RequestContext, request_id
from .request_parser import RequestHead
from .response_sender import ResponseSender, UnreadResponses

log = logging.getLogger(__name__)

JOINED_BYTES_MAX = 65_536
"""Longer bodies are not copied to be sent together with the head."""

RECEIVED_BYTES_MAX = 65_536
"""How many bytes of a body may wait for the application before no more are read."""

COMMON_HEADERS = [
    (b"cache-control", b"no-cache"),
    (b"x-content-type-options", b"nosniff"),
]
"""Headers of every response that does not set them: caches revalidate it, and browsers do not guess its media type."""

Headers = Sequence[tuple[bytes, bytes]]

_CONTROL_CHARACTERS = bytes({*range(32), 127} - {9})
_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}


class SharedState(ServerState):
    """The state that all connections of a server share.

    `draining` means that the server still serves, and closes each connection with its next response. `closing` means
    that it has closed its listening sockets. `unread` are the responses that wait until their clients read them.
    """

    connections: set[Any]
    draining = False
    closing = False

    def __init__(self) -> None:
        super().__init__()
        self.unread = UnreadResponses()


class Connection(Protocol):
    """The connection of an exchange. `sender` sends the responses. `pipeline` are the next requests."""

    pipeline: "deque[Exchange | bytes]"
    scope: Scope
    server_state: SharedState
    transport: asyncio.Transport
    sender: ResponseSender

    def pause_reading(self) -> None:
        """Receive no more for now."""

    def resume_reading(self) -> None:
        """Receive more."""

    def on_response_complete(self, exchange: "Exchange") -> None:
        """Continue with the next request."""


class Exchange:
    """A request and its response. `keep_alive` is false if the response is the last one of its connection."""

    def __init__(self, connection: Connection, request: RequestHead) -> None:
        path, _, query = request.target.partition(b"?")
        text = path.decode("ascii")
        self.scope: Scope = {
            **connection.scope,
            "http_version": request.version,
            "method": request.method,
            "path": unquote(text) if "%" in text else text,
            "raw_path": path,
            "query_string": query,
            "headers": request.headers,
        }
        self.keep_alive = request.keep_alive
        self.started = self.complete = False
        self.task: asyncio.Task[None] | None = None
        self._connection = connection
        self._expects_continue = request.expects_continue
        self._body = bytearray()
        self._body_complete = request.body_bytes == 0
        self._body_delivered = self._disconnected = False
        self._waiter: asyncio.Future[None] | None = None
        self._head: Message = {}
        self._remaining_bytes: int | None = None

    async def run(self, app: ASGIApp) -> None:
        """Let the application process the request in this exchange's `task`."""
        try:
            if not self._disconnected:
                await app(self.scope, self.receive, self.send)
        except Exception:
            log.exception("a response could not be completed")
        finally:
            self._connection.server_state.tasks.discard(self.task)
            if not self.complete:
                self._connection.transport.close()

    def disconnect(self) -> None:
        """Report that the client has disconnected. Cancel the request if it only reads. A write continues."""
        self._disconnected = True
        self._wake()
        context: RequestContext | None = self.scope.get(SCOPE_KEY)
        if context is not None and context.reads and self.task is not None:
            context.disconnected = True
            self.task.cancel()

    def feed(self, body: bytes) -> None:
        """Add a part of the request's body."""
        self._body += body
        if len(self._body) > RECEIVED_BYTES_MAX:
            self._connection.pause_reading()
        self._wake()

    def feed_end(self) -> None:
        """Complete the request's body."""
        self._body_complete = True
        self._wake()

    async def receive(self) -> Message:
        """Return the next part of the request's body, or the disconnection of the client."""
        if self._expects_continue and not self._disconnected:
            self._connection.sender.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self._expects_continue = False
        while not (self._body or self._disconnected or (self._body_complete and not self._body_delivered)):
            self._connection.resume_reading()
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        if self._disconnected:
            return {"type": "http.disconnect"}
        body, self._body, self._body_delivered = bytes(self._body), bytearray(), self._body_complete
        return {"type": "http.request", "body": body, "more_body": not self._body_complete}

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def send(self, message: Message) -> None:
        """Send the head or a part of the body. The head is sent together with the first part.

        A body with a `Content-Length` is in memory, so all its parts are queued and counted as unread. A part of
        another body is accepted after the client has read nearly all before it.
        """
        if message["type"] == "http.response.start":
            self._head = message
            return
        while self.started and self._remaining_bytes is None and not self._connection.sender.writable.is_set():
            await self._connection.sender.writable.wait()
        if self._disconnected or self.complete:
            return
        body, last = message.get("body", b""), not message.get("more_body", False)
        head = b"" if self.started else self._encode_head(len(body) if last else None)
        self.started = True
        self._write(head, b"" if self.scope["method"] == "HEAD" else body)
        if last:
            if self._remaining_bytes and self.scope["method"] != "HEAD":
                raise RuntimeError("the body is shorter than its Content-Length")
            self.complete = True
            self._connection.on_response_complete(self)

    def _write(self, head: bytes, body: bytes) -> None:
        if self._remaining_bytes is not None:
            self._remaining_bytes -= len(body)
            if self._remaining_bytes < 0:
                raise RuntimeError("the body is longer than its Content-Length")
        if len(body) <= JOINED_BYTES_MAX:
            self._connection.sender.write(head + body)
        else:
            self._connection.sender.write(head)
            self._connection.sender.write(body)

    def _encode_head(self, body_bytes: int | None) -> bytes:
        """Return the bytes of the head. A body of unknown length (None) ends with the connection."""
        status, headers = self._head["status"], self._head["headers"]
        given = dict(headers)
        common = [header for header in COMMON_HEADERS if header[0] not in given]
        lines = list(map(b": ".join, (*self._connection.server_state.default_headers, *headers, *common)))
        if b"content-length" in given:
            self._remaining_bytes = int(given[b"content-length"])
        elif status not in (204, 304):
            if body_bytes is None:
                self.keep_alive = False
            else:
                self._remaining_bytes = body_bytes
                lines.append(b"content-length: %d" % body_bytes)
        # After `Expect: 100-continue` without a `100 Continue`, the client may still send the body.
        if self._expects_continue or (self._connection.server_state.draining and not self._connection.pipeline):
            self.keep_alive = False
        if not self.keep_alive:
            lines.append(b"connection: close")
        head = b"\r\n".join(lines)
        if len(head) - len(head.translate(None, _CONTROL_CHARACTERS)) != 2 * (len(lines) - 1):
            raise RuntimeError("a response header contains a control character")
        return _STATUS_LINES[status] + head + b"\r\n\r\n"


def own_response(
    error: TableError, own: Headers, request: Headers = (), *, close: bool, head_only: bool = False
) -> bytes:
    """Return the bytes of a problem that the server itself sends. `own` are the headers of all its responses."""
    response = ProblemResponse(error)
    given = (b"x-request-id", request_id(dict(request)).encode()), *response.raw_headers
    lines = list(map(b": ".join, (*own, *given, *COMMON_HEADERS)))
    if close:
        lines.append(b"connection: close")
    body = b"" if head_only else bytes(response.body)
    return _STATUS_LINES[response.status_code] + b"\r\n".join(lines) + b"\r\n\r\n" + body
