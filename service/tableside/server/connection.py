"""HTTP/1.1 on a connection: what cannot be read as a request is a problem too, and who says nothing is let go.

Tells whoever serves a request that its caller has hung up, and each request that comes while the service is about to
stop. Knows nothing of the application.
"""

import asyncio
import uuid
from http import HTTPStatus
from typing import Any, cast
from urllib.parse import unquote
from weakref import WeakSet

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from ..core import MalformedRequest, TableError
from ..core.errors import Overloaded
from ..http import load_shedder, server_scope
from ..http.wire import problems
from . import request_limits
from .response_writer import ALWAYS, Cycle
from .slow_readers import Reader
from .sockets import readable
from .tls_transport import InPieces

HEAD_MAX_S = 30.0
"""How long the head of a request may take, from when it begins, or from when somebody has connected."""

CLOSE_NOTIFY_S = 2.0
"""How long an idle TLS client may take to confirm that the connection is closed. Some, like Java's, never do."""

WAITING_MAX = 100
"""How many requests may wait on a connection for the answers to those before them."""


class State(ServerState):
    """What the connections of a server share: whether it is about to stop.

    `beginning` are those that were accepted, and are none yet: with TLS that takes a while, and may not come to pass.
    """

    draining = False

    def __init__(self) -> None:
        super().__init__()
        self.beginning: WeakSet[Protocol] = WeakSet()


class Protocol(HttpToolsProtocol):
    """uvicorn's protocol, which would send head and body apart, and its own refusal as plain text.

    It would also set a timer after every answer. Here the server looks now and then who is late.
    """

    reader: Reader
    _answering: RequestResponseCycle | None = None
    _door: load_shedder.Door | None = None
    _state = State()  # of a server that is not told to drain
    _framing: request_limits.Framing
    _head_since: float | None = None
    _idle_since: float | None = None
    _held = False
    _in_pieces: InPieces | None = None
    _refusal: TableError | None = None
    _last: bytes | None = None

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        if isinstance(server_state, State):
            self._state = server_state
            server_state.beginning.add(self)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Take a new connection."""
        if transport.get_extra_info("sslcontext") is not None:
            transport = self._in_pieces = InPieces(transport)
        super().connection_made(transport)
        if self._in_pieces is not None:
            self._in_pieces.begin()
        self.reader, self._framing = Reader(transport), request_limits.Framing()
        self._door = load_shedder.installed(self.app_state)
        self._head_since = self.loop.time()
        self._state.beginning.discard(self)

    def data_received(self, data: bytes) -> None:
        """Take what has come, unless it is the end already, or more than may be."""
        if self._last is not None or self.transport.is_closing():
            return
        begun = self._in_head()
        self._framing.came(len(data))
        try:
            self._feed(data)
        except httptools.HttpParserError:
            self._end_with(self._refusal or MalformedRequest("the request is not HTTP/1.1 that can be read"))
            return
        if not self._in_head():
            if self._framing.in_body and (error := self._framing.body_refusal(len(data))) is not None:
                self._end_with(error)
            return
        if self._head_since is None:
            self._head_since = self.loop.time()
        if begun and (error := self._framing.head_refusal(len(data))) is not None:
            self._end_with(error)  # else most of it may be the end of what came before

    def _feed(self, data: bytes) -> None:
        """Have it parsed. Who would rather speak another protocol is answered in this one, as if he had not asked."""
        while data:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                head = request_limits.without_upgrade(self.parser, self.url, self.headers)
                data = head + data[upgrade.args[0] :]
                self.parser = httptools.HttpRequestParser(self)
            else:
                return

    def is_late(self, now: float) -> bool:
        """Whether an answer is not read, a head that should have come has not, or no other request for long.

        By the loop's clock. Of a request that has begun it is known elsewhere how long it may take.
        """
        if self.reader.is_late(now):
            return True
        if self._held or (self._answering is not None and not self._answering.response_complete):
            return False
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
            server_scope.notify_disconnect(cast("dict[str, Any]", cycle.scope))

    def on_headers_complete(self) -> None:
        """Take a request whose head has come, or refuse it, which is in order where none before it is unanswered."""
        if (upgrade := self.parser.should_upgrade()) and self.parser.get_method() != b"CONNECT":
            return  # It comes again, without that.
        if self.transport.is_closing():
            raise ValueError  # Nobody is told any more.
        self._check_head(upgrade=upgrade)
        self._head_since = self._idle_since = None
        free = not self._held and (self._answering is None or self.cycle.response_complete)
        if self._door is not None and free:
            body = self._door.refusal(self.url)
            if body is not None:
                self._refuse(body)
                return
        self.cycle = self._begun()
        self._framing.in_body = True
        # What comes as headers after the body is nobody's: it would be taken for what the request said before.
        self.headers = request_limits.NOWHERE
        if self._state.draining:
            self.cycle.keep_alive = False
            server_scope.mark_draining(cast("dict[str, Any]", self.scope))
        if free:
            self._start_asgi_task(self.cycle, self.app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, self.app))

    def _check_head(self, *, upgrade: bool) -> None:
        """Raise what ends the parsing if this is none that is served, with the reason kept."""
        version = self.scope["http_version"] = self.parser.get_http_version()
        self._refusal = self._framing.refusal(version, self.url, self.headers, upgrade=upgrade)
        if len(self.pipeline) >= WAITING_MAX or self._framing.heads > WAITING_MAX:
            self._refusal = Overloaded(f"{WAITING_MAX} requests wait on this connection")
        if self._refusal is not None:
            raise ValueError

    def on_body(self, body: bytes) -> None:
        """Take a part of a body, if it is still wanted."""
        self._framing.body_bytes += len(body)
        if self._framing.in_body:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """Take note that a request is complete."""
        if self._framing.in_body:
            self._framing.in_body = False
            # What the inherited method does but for one look, which every request would pay.
            if not self.cycle.response_complete:
                self.cycle.more_body = False
                self.cycle.message_event.set()

    def on_response_complete(self) -> None:
        """Go on with the request that has come meanwhile, or wait for another, once what was sent is being read."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.reader.caught_up()
        if self.flow.write_paused:
            self._held = True
            self.flow.pause_reading()
        else:
            self._go_on()

    def resume_writing(self) -> None:
        """Go on, now that nearly all was read that was sent."""
        if self._in_pieces is not None and not self._in_pieces.go_on():
            return
        super().resume_writing()
        self.reader.caught_up()
        if self._held and not self.transport.is_closing():
            self._held = False
            self._go_on()

    def _go_on(self) -> None:
        now = self.loop.time()
        if self.pipeline:
            self.flow.resume_reading()
            self._start_asgi_task(*self.pipeline.pop())
        elif self._last is not None:
            self.transport.write(self._last)
            self.transport.close()
        else:
            self.flow.resume_reading()
            self._idle_since = now
            if self._in_head():
                self._head_since = now

    def _begun(self) -> Cycle:
        """Return what a head that has come asks for. Raise what the parser takes for a request that cannot be read."""
        scope, parser = cast("dict[str, Any]", self.scope), self.parser
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
            keep_alive=scope["http_version"] != "1.0" and parser.should_keep_alive(),
            on_response=self.on_response_complete,
        )

    def _end_with(self, error: TableError) -> None:
        """Refuse what comes next and end the connection, after the answers to all that came before in order."""
        if self.transport.is_closing():
            return
        if self._framing.in_body:  # then what cannot be read is the rest of a request that was taken
            if not self.pipeline or self.pipeline[0][0] is not self.cycle:
                self._break_off(error)
                return
            self.pipeline.popleft()
        if self._held or not (self._answering is None or self._answering.response_complete):
            self._last = _whole(error)
            self.flow.pause_reading()
        else:
            self.transport.write(_whole(error))
            self.transport.close()

    def _break_off(self, error: TableError) -> None:
        """End the connection in the middle of a body; that it cannot be read is said if nothing was said yet."""
        if not self.cycle.response_started:
            self.transport.write(_whole(error))
        self.transport.close()

    # The end of the service

    @property
    def fresh(self) -> bool:
        """Whether nothing has come on this connection yet."""
        return cast("dict[str, Any] | None", self.scope) is None

    @property
    def in_use(self) -> bool:
        """Whether a request is being received or answered."""
        answering = self._answering is not None and not self.cycle.response_complete
        return self._held or answering or self._in_head()

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
            self.loop.call_later(CLOSE_NOTIFY_S, self.transport.abort)

    def _refuse(self, body: bytes) -> None:
        """Answer that there is no room, and read what else comes on this connection only after the time that it says.

        Else those who ask again at once, and there may be thousands, leave no time for those who were let in.
        """
        method = self.parser.get_method()
        self.scope["method"] = method.decode("ascii")
        self._answering = self.cycle = _REFUSED
        self._framing.in_body = True
        head = load_shedder.head(self.headers, self.server_state.default_headers, len(body))
        self.headers = request_limits.NOWHERE
        last = not self.parser.should_keep_alive() or self.expect_100_continue or self._state.draining
        end = b"connection: close\r\n\r\n" if last else b"\r\n"
        self.transport.write(head + b"\r\n" + ALWAYS + end + (b"" if method == b"HEAD" else body))
        if last:
            self.transport.close()
            return
        self.on_response_complete()
        self.flow.pause_reading()
        self.loop.call_later(load_shedder.RETRY_AFTER_S, self._read_on)

    def _read_on(self) -> None:
        if not self._held and not self.transport.is_closing():
            self.flow.resume_reading()

    def _in_head(self) -> bool:
        """Whether a part of a request's head has come, and not its end."""
        scope: dict[str, Any] | None = self.scope  # type: ignore[assignment]  # None before the first request
        return scope is not None and "method" not in scope

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)


def _whole(error: TableError) -> bytes:
    """Return an answer that is a connection's last."""
    body, status = problems.encode(error), HTTPStatus(problems.status(error))
    head = [
        f"HTTP/1.1 {status.value} {status.phrase}".encode(),
        b"content-type: " + problems.MEDIA_TYPE.encode(),
        b"content-length: %d" % len(body),
        b"x-request-id: " + uuid.uuid4().hex.encode(),
        b"connection: close",
    ]
    return b"\r\n".join(head) + b"\r\n" + ALWAYS + b"\r\n" + body


class _Refused:
    """Stands where the request is that a connection has last answered, after a refusal."""

    response_complete = True
    response_started = True
    message_event = asyncio.Event()  # nobody waits for it


_REFUSED = cast("RequestResponseCycle", _Refused())
