"""HTTP/1.1 connections: limits and timeouts for requests, problem details for malformed ones, and load shedding.

Extends uvicorn's protocol class. Reports disconnects and the shutdown to the application through `http.server_scope`.
"""

import asyncio
import random
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import unquote

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from ..core import TableError
from ..core.errors import Overloaded
from ..http import load_shedder, server_scope
from ..http.wire import problems
from .request_limits import RequestLimits, malformed, without_upgrade
from .response_writer import HeadJoiner, RequestCycle, problem_response
from .slow_readers import ReadProgress, slowest

HEAD_MAX_S = 30.0
"""The timeout for the head of a request, from its first byte or, before that, from the start of the connection."""

CLOSE_NOTIFY_S = 2.0
"""How long an idle TLS client may take to confirm that the connection is closed. Some, like Java's, never do."""

PIPELINED_MAX = 100
"""How many requests may wait on a connection for the responses to those before them."""

WRITE_BUFFER_BYTES = 65_536
"""How many bytes a TLS transport may keep before it pauses the writer; that is what others have by default."""


class SharedState(ServerState):
    """The state that all connections of a server share.

    `draining` means that the server still serves, and closes each connection with its next response; `closing` that it
    has closed its listening sockets.
    """

    draining = False
    closing = False


class HttpConnection(HttpToolsProtocol):
    """A connection. Instead of setting timers, it expects that the server calls `is_late` regularly."""

    read_progress: ReadProgress
    server_state: SharedState
    _answering: RequestResponseCycle | None = None
    _in_body = False
    _joiner: HeadJoiner
    _last_response: bytes | None = None
    _late_at: float | None = None
    _load_shedder: load_shedder.LoadShedder | None = None
    _waits_for_client = False

    def __init__(
        self,
        config: Config,
        server_state: SharedState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._limits = RequestLimits()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Start to receive requests."""
        super().connection_made(transport)
        self.read_progress, self._joiner = ReadProgress(transport), HeadJoiner(transport)
        self._load_shedder = load_shedder.installed(self.app_state)
        self._late_at = self.loop.time() + HEAD_MAX_S
        if self.scheme == "https":
            transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        if self.server_state.closing:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the disconnect to the request that is being answered, which need not be the last one received."""
        super().connection_lost(exc)
        cycle = self._answering
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
            server_scope.notify_disconnect(cast("dict[str, Any]", cycle.scope))

    def is_late(self, now: float) -> bool:
        """Return whether a response is not being read, the head of a request takes too long, or the client is idle.

        `now` is a time of the event loop. The timeout for bodies is the application's.
        """
        return self.read_progress.is_late(now) or (not self._busy and self._late_at is not None and now > self._late_at)

    @property
    def _busy(self) -> bool:
        """Whether a response is being computed, or has to be read before the next request is served."""
        return self._waits_for_client or not (self._answering is None or self._answering.response_complete)

    @property
    def _in_head(self) -> bool:
        """Whether only a part of a request's head has arrived."""
        scope: dict[str, Any] | None = self.scope  # type: ignore[assignment]  # None before the first request
        return scope is not None and "method" not in scope

    # Receiving

    def data_received(self, data: bytes) -> None:
        """Parse requests, and end the connection with a problem response if they are malformed or too large."""
        if self._last_response is not None or self.transport.is_closing():
            return
        was_in_head = self._in_head
        self._limits.begin_piece(len(data))
        try:
            self._parse(data)
            self._check_partial(was_in_head=was_in_head)
        except httptools.HttpParserError as error:
            cause = error.__context__  # raised by a callback
            self._end_with(cause if isinstance(cause, TableError) else malformed())
        except TableError as error:
            self._end_with(error)

    def _parse(self, data: bytes) -> None:
        """Parse requests. One that asks for another protocol is parsed again as if it did not."""
        while data:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                data = without_upgrade(self.parser, self.url, self.headers) + data[upgrade.args[0] :]
                self.parser = httptools.HttpRequestParser(self)
            else:
                return

    def _check_partial(self, *, was_in_head: bool) -> None:
        """Check the request that has arrived in part, if any."""
        if self._in_head:
            if self._late_at is None or not was_in_head:
                self._late_at = self.loop.time() + HEAD_MAX_S
            if was_in_head:  # otherwise most of the piece may be the end of the request before
                self._limits.check_partial_head()
        elif self._in_body:
            self._limits.check_partial_body()

    def on_headers_complete(self) -> None:
        """Start a request, or queue it after those before it, unless it is refused."""
        if (upgrade := self.parser.should_upgrade()) and self.parser.get_method() != b"CONNECT":
            return  # It is parsed again.
        if self.transport.is_closing():
            raise malformed()
        version = self.scope["http_version"] = self.parser.get_http_version()
        self._limits.check_head(version, self.url, self.headers, upgrade=upgrade)
        if len(self.pipeline) >= PIPELINED_MAX or self._limits.heads > PIPELINED_MAX:
            raise Overloaded(f"{PIPELINED_MAX} requests wait on this connection")
        self._late_at = None
        if self._load_shedder is not None and not self._busy:
            body = self._load_shedder.rejection(self.url)
            if body is not None:
                self._shed(body)
                return
        self.cycle = self._create_cycle()
        self._begin_body()
        if self.server_state.draining:
            self.cycle.keep_alive = False
            server_scope.mark_draining(cast("dict[str, Any]", self.scope))
        if self._busy:
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, self.app))
        else:
            self._start_asgi_task(self.cycle, self.app)

    def on_body(self, body: bytes) -> None:
        """Pass a part of a body to its request."""
        self._limits.body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Complete a body."""
        if self._in_body:
            self._in_body = False
            super().on_message_complete()

    def _begin_body(self) -> None:
        self._in_body = True
        self.headers = []  # for trailers, which are ignored: the request has the list before

    def _create_cycle(self) -> RequestCycle:
        scope, parser = cast("dict[str, Any]", self.scope), self.parser
        url = httptools.parse_url(self.url)
        path = url.path.decode("ascii")
        scope["method"] = parser.get_method().decode("ascii")
        scope["path"] = unquote(path) if "%" in path else path
        scope["raw_path"] = url.path
        scope["query_string"] = url.query or b""
        cycle = RequestCycle(
            scope=self.scope,
            transport=cast("asyncio.Transport", self._joiner),
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=False,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue,
            keep_alive=scope["http_version"] != "1.0" and parser.should_keep_alive(),
            on_response=self.on_response_complete,
        )
        cycle.encrypted, cycle.joiner, cycle.read_progress = self.scheme == "https", self._joiner, self.read_progress
        return cycle

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    # Responding

    def on_response_complete(self) -> None:
        """Go on with the next request once the client has read nearly all of the response."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.read_progress.restart()
        if self.flow.write_paused:
            self._waits_for_client = True
            self.flow.pause_reading()
        else:
            self._go_on()

    def resume_writing(self) -> None:
        """Go on after the client has read nearly all that was sent."""
        super().resume_writing()
        self.read_progress.restart()
        if self._waits_for_client and not self.transport.is_closing():
            self._waits_for_client = False
            self._go_on()

    def _go_on(self) -> None:
        if self.pipeline:
            self.flow.resume_reading()
            self._start_asgi_task(*self.pipeline.pop())
        elif self._last_response is not None:
            self.transport.write(self._last_response)
            self.transport.close()
        else:
            self.flow.resume_reading()
            self._late_at = self.loop.time() + (HEAD_MAX_S if self._in_head else self.timeout_keep_alive)

    def _shed(self, body: bytes) -> None:
        """Respond with an overload problem, and read more from this connection only after its `Retry-After`.

        Otherwise thousands of clients that try again at once would leave no time for the requests in progress.
        """
        method = self.parser.get_method()
        self.scope["method"] = method.decode("ascii")
        headers = load_shedder.headers(self.headers, self.server_state.default_headers)
        self._answering = self.cycle = _SHED
        self._begin_body()
        close = not self.parser.should_keep_alive() or self.expect_100_continue or self.server_state.draining
        self.transport.write(problem_response(503, body, headers, close=close, head_only=method == b"HEAD"))
        if close:
            self.transport.close()
            return
        self.on_response_complete()
        self.flow.pause_reading()
        self.loop.call_later(load_shedder.RETRY_AFTER_S, self._read_on)

    def _read_on(self) -> None:
        if not self._waits_for_client and not self.transport.is_closing():
            self.flow.resume_reading()

    def _end_with(self, error: TableError) -> None:
        """Close the connection with a problem response, after the responses to the requests before."""
        if self.transport.is_closing():
            return
        body = problems.encode(error)
        headers = [(b"x-request-id", b"%032x" % random.getrandbits(128))]
        response = problem_response(problems.status(error), body, headers, close=True)
        if self._in_body and self.pipeline and self.pipeline[0][0] is self.cycle:
            self.pipeline.popleft()  # The rest of its body cannot be read.
        elif self._in_body:
            if not self.cycle.response_started:
                self.transport.write(response)
            self.transport.close()
            return
        if self._busy:
            self._last_response = response
            self.flow.pause_reading()
        else:
            self.transport.write(response)
            self.transport.close()

    # Shutting down

    def announce_close(self) -> None:
        """Close the connection with the response to the last request received, if it has not started."""
        if self._answering is not None and not self.cycle.response_started:
            self.cycle.keep_alive = False

    def shutdown(self) -> None:
        """Close the connection if it is idle, otherwise with the response to the last request received."""
        if self._busy or self._in_head:
            self.announce_close()
        elif not self.transport.is_closing():
            self.transport.close()
            self.loop.call_later(CLOSE_NOTIFY_S, self.transport.abort)


def late_connections(connections: Iterable[HttpConnection], now: float) -> list[HttpConnection]:
    """Return the connections to abort: those that are late and, above the limit of unread bytes, the slowest."""
    late, others = [], {}
    for connection in connections:
        if connection.is_late(now):
            late.append(connection)
        else:
            others[connection.read_progress] = connection
    return late + [others[progress] for progress in slowest(others, now)]


_SHED = cast(
    "RequestResponseCycle",
    SimpleNamespace(response_complete=True, response_started=True, message_event=asyncio.Event()),
)
"""Replaces the request of a connection after load shedding, so that no object has to be created for it."""
