"""HTTP/1.1 connections: requests in their order, timeouts, load shedding, and refusals of malformed requests."""

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from starlette.types import ASGIApp, Scope
from uvicorn.config import Config

from ..catalog import InFlight
from ..core import TableError
from ..core.errors import Overloaded
from ..http import BODY_BYTES_MAX_KEY, IN_FLIGHT_KEY, PROBES
from .exchange import Exchange, SharedState, own_response
from .request_parser import RequestHead, RequestParser
from .response_sender import ResponseSender

HEAD_MAX_S = 30.0
"""The timeout for the head of a request, from its first byte or, before that, from the start of the connection."""

PIPELINED_MAX = 100
"""How many requests may wait on a connection for the responses to those before them, or arrive together."""

WRITE_BUFFER_BYTES = 65_536
"""How many unread bytes a transport may keep before it pauses the writer. It resumes when it keeps none."""

IGNORED_BODIES_MAX = 2
"""How much of a body may arrive after its response, as a multiple of the limit of a body.

A client that sends a body slightly above the limit can still read that it is too large.
"""

IDLE_S = 0.02
"""How long a connection must be idle before a shutdown closes it: a request may just be arriving."""

CLOSE_NOTIFY_S = 2.0
"""How long an idle TLS client may take to confirm that the connection is closed. Some, like Java's, never do."""

_PROBES = frozenset(path.encode() for path in PROBES)


class HttpConnection(asyncio.Protocol):
    """A connection. Instead of setting timers, it expects that the server calls `is_late` regularly."""

    transport: asyncio.Transport
    sender: ResponseSender

    def __init__(
        self,
        config: Config,
        server_state: SharedState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.server_state = server_state
        app = config.loaded_app
        # The outer layers of the framework only set `app`, for each request.
        self._app: ASGIApp = getattr(app, "middleware_stack", None) or app
        self.scope: Scope = {
            "type": "http",
            "app": app,
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "root_path": "",
            "state": app_state,
        }
        self._in_flight: InFlight | None = app_state.get(IN_FLIGHT_KEY)
        self._body_bytes_max: Callable[[], float] = app_state.get(BODY_BYTES_MAX_KEY, lambda: math.inf)
        self._arrived = self._ignored_bytes = 0
        self._keep_alive_s = config.timeout_keep_alive
        self._loop = asyncio.get_running_loop()
        self._parser = RequestParser(self._on_request, self._on_body, self._on_request_complete)
        self._receiving: Exchange | None = None
        self._answering: Exchange | None = None
        self.pipeline: deque[Exchange | bytes] = deque()
        self._paused = self._ended = False
        self._late_at: float | None = time.monotonic() + HEAD_MAX_S

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Start to receive requests."""
        self.transport = transport
        self.sender = ResponseSender(transport, self.server_state.unread, self._on_writable)
        self.server_state.connections.add(self)
        address, encrypted = transport.get_extra_info("sockname"), transport.get_extra_info("sslcontext") is not None
        self.scope["server"], self.scope["scheme"] = address and address[:2], "https" if encrypted else "http"
        client = transport.get_extra_info("peername")
        self.scope["client"] = client[:2] if client else None
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES, low=0)
        if self.server_state.closing:
            self.shutdown()

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the disconnect to the request that is being answered."""
        self.server_state.connections.discard(self)
        if self._answering is not None and not self._answering.complete:
            self._answering.disconnect()
        self.sender.close()

    def is_late(self, now: float) -> bool:
        """Return whether a response is not being read, the head of a request takes too long, or the client is idle.

        `now` is a time of `time.monotonic`. The timeout for bodies is the application's.
        """
        if self.sender.is_late(now):
            return True
        return not self._busy and self._late_at is not None and now > self._late_at

    @property
    def _busy(self) -> bool:
        """Whether a response is being computed, or has to be read before the next request is served."""
        return self._answering is not None or not self.sender.writable.is_set()

    # Receiving

    def data_received(self, data: bytes) -> None:
        """Parse requests, and end the connection with a problem response if they are malformed or too large."""
        if self._ended or self.transport.is_closing():
            return
        was_in_head, self._arrived = self._parser.in_head, 0
        try:
            self._parser.feed(data)
        except TableError as error:
            self._end_with(error)
        if self._parser.in_head and (self._late_at is None or not was_in_head):
            self._late_at = time.monotonic() + HEAD_MAX_S

    def _on_request(self, head: RequestHead) -> None:
        """Start a request, or queue it after those before it, unless it is shed."""
        self._late_at, self._ignored_bytes = None, 0
        if self.transport.is_closing():
            return
        self._arrived += 1
        if self._arrived > PIPELINED_MAX or len(self.pipeline) >= PIPELINED_MAX:
            raise Overloaded(f"{PIPELINED_MAX} requests wait on this connection")
        busy = self._busy
        limit = None if busy or self._in_flight is None else self._in_flight.exhausted()
        if limit is not None and head.target.partition(b"?")[0] not in _PROBES:
            self._shed(head, limit.overloaded())
            return
        exchange = Exchange(self, head)
        self._receiving = exchange if head.body_bytes != 0 else None
        if busy:
            self.pause_reading()
            self.pipeline.append(exchange)
        else:
            self._start(exchange)

    def _on_body(self, body: bytes) -> None:
        """Pass a part of a body to its request. After the response, ignore it up to a limit."""
        if self._receiving is not None:
            self._receiving.feed(body)
            return
        self._ignored_bytes += len(body)
        if self._ignored_bytes > IGNORED_BODIES_MAX * self._body_bytes_max() and not self.transport.is_closing():
            self.transport.close()

    def _on_request_complete(self) -> None:
        if self._receiving is not None:
            self._receiving.feed_end()
            self._receiving = None

    def pause_reading(self) -> None:
        """Receive no more for now."""
        if not self._paused and not self.transport.is_closing():
            self._paused = True
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Receive more, unless the connection is about to end."""
        if self._paused and not self._ended and not self.transport.is_closing():
            self._paused = False
            self.transport.resume_reading()

    def _shed(self, head: RequestHead, error: Overloaded) -> None:
        """Respond with an overload problem, and read more from this connection only after its `Retry-After`.

        Otherwise thousands of clients that try again immediately would leave no time for the requests in progress.
        """
        own = self.server_state.default_headers
        close = not head.keep_alive or head.expects_continue or self.server_state.draining
        self.sender.write(own_response(error, own, head.headers, close=close, head_only=head.method == "HEAD"))
        if close:
            self.transport.close()
            return
        self._late_at = time.monotonic() + self._keep_alive_s
        self.pause_reading()
        self._loop.call_later(error.retry_after_s or 0, self._read_on)

    def _read_on(self) -> None:
        if not self._busy:
            self.resume_reading()

    def _end_with(self, error: TableError) -> None:
        """Close the connection with a problem response, after the responses to the requests before."""
        self._ended = True
        self.pause_reading()
        problem, broken = own_response(error, self.server_state.default_headers, close=True), self._receiving
        if self._parser.in_body and (broken is None or broken.started):
            self.transport.close()  # The request already has its response.
        elif not self._busy or (broken is not None and broken is self._answering):
            self._start(problem)
        else:
            if broken is not None:
                self.pipeline.remove(broken)
            self.pipeline.append(problem)

    # Responding

    def _start(self, item: Exchange | bytes) -> None:
        """Send the problem that ends the connection, or let the application answer a request."""
        if isinstance(item, bytes):
            self.sender.write(item)
            self.transport.close()
        else:
            self._answering = item
            self.resume_reading()
            item.task = self._loop.create_task(item.run(self._app))
            self.server_state.tasks.add(item.task)

    def pause_writing(self) -> None:
        """Pause the responses, because the client does not read them as fast."""
        self.sender.pause()

    def resume_writing(self) -> None:
        """Continue after the client has read nearly all that was sent."""
        self.sender.resume()

    def _on_writable(self) -> None:
        if self._answering is None or self._answering.complete:
            self._go_on()

    def on_response_complete(self, exchange: Exchange) -> None:
        """Continue with the next request once the client has read nearly all of the response."""
        self.server_state.total_requests += 1
        if self._receiving is exchange:
            self._receiving = None
        if self.sender.writable.is_set():
            self._go_on()
        else:
            self.pause_reading()

    def _go_on(self) -> None:
        last, self._answering = self._answering, None
        if self.transport.is_closing():
            return
        if last is not None and not last.keep_alive:
            self.transport.close()
        elif self.pipeline:
            self._start(self.pipeline.popleft())
        else:
            self.resume_reading()
            self._late_at = time.monotonic() + (HEAD_MAX_S if self._parser.in_head else self._keep_alive_s)
            if self.server_state.closing:
                self.shutdown()

    # Shutting down

    def shutdown(self) -> None:
        """Close the connection if it is idle. Otherwise `draining` closes it with its next response."""
        self._loop.call_later(IDLE_S, self._close_if_idle)

    def _close_if_idle(self) -> None:
        if not self._busy and not self._parser.in_head and not self.transport.is_closing():
            self.transport.close()
            self._loop.call_later(CLOSE_NOTIFY_S, self.transport.abort)
