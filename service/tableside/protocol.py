"""HTTP/1.1 on a connection: what cannot be read as a request is a problem too, and who says nothing is let go.

Tells whoever serves a request that its caller has hung up, and each request that comes while the service is about to
stop. Knows nothing of the application.
"""

import asyncio
import uuid
from http import HTTPStatus
from typing import Any, cast
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from . import door, draining, hang_ups
from .answering import Cycle
from .errors import MalformedRequest, TableError, TooLarge
from .listening import readable
from .wire import problems

HEAD_BYTES_MAX = 65_536
"""What the head of a request may have, beside what came with its end."""

HEAD_MAX_S = 30.0
"""How long the head of a request may take, from when it begins, or from when somebody has connected."""


class State(ServerState):
    """What the connections of a server share: whether it is about to stop."""

    draining = False


class Protocol(HttpToolsProtocol):
    """uvicorn's protocol, which would send head and body apart, and its own refusal as plain text.

    It would also set a timer after every answer. Here the server looks now and then who is late.
    """

    _answering: RequestResponseCycle | None = None
    _door: door.Door | None = None
    _state = State()  # of a server that is not told to drain
    _head_bytes = 0
    _head_since: float | None = None
    _idle_since: float | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Take a new connection."""
        super().connection_made(transport)
        self._door = door.installed(self.app_state)
        self._head_since = self.loop.time()
        if isinstance(self.server_state, State):
            self._state = self.server_state

    def data_received(self, data: bytes) -> None:
        """Take what has come, unless it is a head without end."""
        begun = self._in_head()
        self._idle_since = None
        super().data_received(data)
        if not self._in_head():
            return
        if self._head_since is None:
            self._head_since = self.loop.time()
        if begun:  # else most of it may be the end of what came before
            self._head_bytes += len(data)
        if self._head_bytes > HEAD_BYTES_MAX and not self.transport.is_closing():
            self._end_with(TooLarge(f"the head of a request may have {HEAD_BYTES_MAX} bytes"))

    def is_late(self, now: float) -> bool:
        """Whether a head that should have come has not, or no other request for long, by the loop's clock."""
        if self._head_since is not None:
            return now - self._head_since > HEAD_MAX_S
        return self._idle_since is not None and now - self._idle_since > self.timeout_keep_alive

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of a connection, and tell whoever works for it."""
        super().connection_lost(exc)
        cycle = self._answering
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
            hang_ups.hung_up(cast("dict[str, Any]", cycle.scope))

    def on_headers_complete(self) -> None:
        """Take a request whose head has come, or refuse it, which is in order where none before it is unanswered."""
        self._head_bytes, self._head_since = 0, None
        if self._door is not None and (self._answering is None or self.cycle.response_complete):
            body = self._door.refusal(self.url)
            if body is not None:
                self._refuse(body)
                return
        before, self.cycle = self.cycle, self._begun()
        if self._state.draining:
            self.cycle.keep_alive = False
            draining.mark(cast("dict[str, Any]", self.scope))
        if before is None or before.response_complete:
            self._start_asgi_task(self.cycle, self.app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, self.app))

    def on_response_complete(self) -> None:
        """Go on with the request that has come meanwhile, or wait for another."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        else:
            self._idle_since = self.loop.time()

    def _begun(self) -> Cycle:
        """Return what a head that has come asks for. Raise what the parser takes for a request that cannot be read."""
        scope, parser = cast("dict[str, Any]", self.scope), self.parser
        version = scope["http_version"] = parser.get_http_version()
        url = httptools.parse_url(self.url)
        path = url.path.decode("ascii")
        scope["method"] = parser.get_method().decode("ascii")
        scope["path"] = unquote(path) if "%" in path else path
        scope["raw_path"] = url.path
        scope["query_string"] = url.query or b""
        return Cycle(
            scope=self.scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=False,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue,
            keep_alive=version != "1.0" and parser.should_keep_alive(),
            on_response=self.on_response_complete,
        )

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP and end the connection."""
        self._end_with(MalformedRequest("the request is not HTTP/1.1 that can be read"))

    def _end_with(self, error: TableError) -> None:
        body, status = problems.encode(error), HTTPStatus(problems.status(error))
        head = [
            f"HTTP/1.1 {status.value} {status.phrase}".encode(),
            b"content-type: " + problems.MEDIA_TYPE.encode(),
            b"content-length: %d" % len(body),
            b"x-request-id: " + uuid.uuid4().hex.encode(),
            b"connection: close",
        ]
        self.transport.write(b"\r\n".join(head) + b"\r\n\r\n" + body)
        self.transport.close()

    # The end of the service

    @property
    def fresh(self) -> bool:
        """Whether nothing has come on this connection yet."""
        return self._scope() is None

    @property
    def in_use(self) -> bool:
        """Whether a request is being received or answered."""
        return self._in_head() or (self._answering is not None and not self.cycle.response_complete)

    def last_answer(self) -> None:
        """Say with the answer to what has come that it is the last one, if that can still be said."""
        if self._answering is not None and not self.cycle.response_started:
            self.cycle.keep_alive = False

    def shutdown(self) -> None:
        """Close the connection, or have it closed after the answer to what has come."""
        if self.in_use:
            self.last_answer()
        elif not self.transport.is_closing() and not readable([self.transport.get_extra_info("socket").fileno()]):
            self.transport.close()

    def _refuse(self, body: bytes) -> None:
        """Answer that there is no room, and read what else comes on this connection only after the time that it says.

        Else those who ask again at once, and there may be thousands, leave no time for those who were let in.
        """
        method = self.parser.get_method()
        self.scope["method"] = method.decode("ascii")
        self._answering = self.cycle = _REFUSED
        head = door.head(self.headers, self.server_state.default_headers, len(body))
        last = not self.parser.should_keep_alive() or self.expect_100_continue or self._state.draining
        self.transport.write(
            head + (b"\r\nconnection: close\r\n\r\n" if last else b"\r\n\r\n") + (b"" if method == b"HEAD" else body)
        )
        if last:
            self.transport.close()
            return
        self.on_response_complete()
        self.flow.pause_reading()
        self.loop.call_later(door.RETRY_AFTER_S, self._read_on)

    def _read_on(self) -> None:
        if not self.transport.is_closing():
            self.flow.resume_reading()

    def _in_head(self) -> bool:
        """Whether a part of a request's head has come, and not its end."""
        return (scope := self._scope()) is not None and "method" not in scope

    def _scope(self) -> dict[str, Any] | None:
        return cast("dict[str, Any] | None", self.scope)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)


class _Refused:
    """Stands where the request is that a connection has last answered, after a refusal."""

    response_complete = True
    response_started = True
    message_event = asyncio.Event()  # nobody waits for it


_REFUSED = cast("RequestResponseCycle", _Refused())
