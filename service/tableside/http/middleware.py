"""The outermost ASGI layer: request ids, authentication, admission, routing, body timeouts and error responses."""

import asyncio
import logging
import random
import re
import time
from collections.abc import Awaitable, Mapping, Sequence

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..auth import UNRESTRICTED, Auth, Caller, Unauthenticated
from ..catalog import InFlight, Reservation
from ..core import Applied, DeadlineExceeded, Internal, TableError
from ..core.concurrency import resumed
from ..core.errors import Overloaded
from .addresses import AllowedHosts, PathPrefix
from .audit import AuditLog
from .endpoints import Router
from .request_context import (
    BODY_BYTES_MAX_KEY,
    IN_FLIGHT_KEY,
    PROBES,
    SCOPE_KEY,
    Observer,
    RequestContext,
    headers_by_name,
)
from .request_observers import RequestSpans
from .responses import ProblemResponse

log = logging.getLogger(__name__)

BODY_TIMEOUT_S = 30.0
"""The timeout of a body, plus one second for each `BODY_BYTES_PER_S_MIN` that have arrived."""

BODY_BYTES_PER_S_MIN = 1024

SLOW_AFTER_S = 1.0
"""The time after which an incomplete body is slow and its request no longer occupies a slot.

Only the bytes of a slow body that have arrived count as in flight. The request needs a slot again when the body is
complete.
"""

_READS = frozenset({"GET", "HEAD"})
_REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,128}")


class StartError(Exception):
    """The service cannot start, for an expected reason. The message states it in one line."""


class RequestMiddleware:
    """Dispatches requests to the endpoints. It is pure ASGI, because it runs for every request.

    FastAPI's own layers take longer than a whole operation. The wrapped application only starts and stops.

    The declared length of a body counts as in flight only up to `body_bytes_max`, because longer bodies are rejected.
    `spans` traces requests if it is set.
    """

    def __init__(
        self,
        app: ASGIApp,
        router: Router,
        in_flight: InFlight,
        auth: Auth,
        hosts: AllowedHosts,
        prefix: PathPrefix,
        audit: AuditLog,
        observers: Sequence[Observer] = (),
        *,
        body_bytes_max: int = 16 * 2**20,
    ) -> None:
        self._app = app
        self._router = router
        self._in_flight = in_flight
        self._auth = auth
        self._hosts = hosts
        self._prefix = prefix
        self._audit = audit
        self._observers = observers
        self.spans: RequestSpans | None = None
        self.body_bytes_max = body_bytes_max

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Process a request, and report it to the observers when it has ended."""
        if scope["type"] != "http":
            shared = {IN_FLIGHT_KEY: self._in_flight, BODY_BYTES_MAX_KEY: lambda: self.body_bytes_max}
            scope.get("state", {}).update(shared)
            await self._app(scope, receive, _with_short_startup_errors(send))
            return
        if self._prefix.is_possible:
            self._prefix.apply(scope)
        method, headers = scope["method"], headers_by_name(scope["headers"])
        context = RequestContext(request_id(headers), method, headers, reads=method in _READS)
        scope[SCOPE_KEY] = context
        if self.spans is not None:
            self.spans.start(scope, context)
        request = RequestInProgress(context, receive, send, self._in_flight)
        try:
            await self._process(scope, request)
        finally:
            request.reservation.leave()
            context.duration_s = time.perf_counter() - context.started_at
            for observer in self._observers:
                observer.request_ended(context)
            self._audit.request_ended(scope, context)
            if self.spans is not None:  # The span ends last, because log lines contain the current span.
                self.spans.end(scope, context)

    async def _process(self, scope: Scope, request: "RequestInProgress") -> None:
        context = request.context
        try:
            if not self._hosts.allows_any:
                self._hosts.check(context.headers.get(b"host"))
            # Authentication precedes admission, so that clients without a token do not occupy slots.
            caller = self._auth.admit(scope) if self._auth.required else UNRESTRICTED
            request.set_caller(caller if isinstance(caller, Caller) else await caller)
            route = self._router.find(scope)
            context.route = route.path
            if scope["path"] not in PROBES:
                declared = int(context.headers.get(b"content-length", 0))  # The server has rejected invalid numbers.
                request.reservation.take_slot()
                request.reservation.grow_body_to(min(declared, self.body_bytes_max))
                context.reservation = request.reservation
            await route.app(scope, request.receive, request.send)
        except ClientDisconnect:
            return  # The client has gone, and no operation was attempted.
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) is not None:
                task.uncancel()
            if not context.disconnected and not context.status:
                await _error_response(_shutdown_error(context), context)(scope, request.receive, request.send)
        except Exception as error:
            if context.status:
                raise
            if isinstance(error, Unauthenticated):
                context.detail = error.reason
            request.reservation.leave()
            response = _error_response(error, context)
            _drop_tracebacks(error)
            await response(scope, request.receive, request.send)


class RequestInProgress:
    """Wraps `receive` and `send` of one request: reserves its share of the limits, and times out a slow body."""

    _timer: asyncio.TimerHandle | None = None
    _body_started_at: float | None = None
    _slow = _timed_out = False

    def __init__(self, context: RequestContext, receive: Receive, send: Send, in_flight: InFlight) -> None:
        self.context = context
        self.reservation = Reservation(in_flight)
        self._operations = in_flight.operations
        self._receive = receive
        self._send = send

    def set_caller(self, caller: Caller) -> None:
        """Set the caller for the endpoint, the log and the limits."""
        self.context.permissions = caller
        if caller.name:
            self.context.caller = self.reservation.caller = caller.name

    async def receive(self) -> Message:
        """Receive a part of the body. Raise Overloaded above the limits, DeadlineExceeded if the body is too slow."""
        receiving = self._receive().__await__()
        try:
            awaited = receiving.send(None)
        except StopIteration as received:  # Most bodies have arrived with their heads, and need no timer.
            message: Message = received.value
        else:
            message = await self._received_in_time(resumed(receiving, awaited))
        self.context.bytes_in += len(message.get("body", b""))
        self.reservation.grow_body_to(self.context.bytes_in)
        if not message.get("more_body"):
            if self._slow:
                self.reservation.take_slot()
            # Check again now, because a later rejection would waste the decoding.
            self._operations.check(self.reservation.caller)
        return message

    def send(self, message: Message) -> Awaitable[None]:
        """Send a part of the response.

        Returns the server's own coroutine, which saves one coroutine for each part.
        """
        context = self.context
        if message["type"] == "http.response.start":
            context.status = message["status"]
            message["headers"].append((b"x-request-id", context.request_id.encode()))
        else:
            context.bytes_out += len(message.get("body", b""))
            self.reservation.leave()  # Only the client's reading of the response remains.
        return self._send(message)

    async def _received_in_time(self, receiving: Awaitable[Message]) -> Message:
        task = asyncio.current_task()
        assert task is not None
        self._start_timer(task)
        try:
            return await receiving
        except asyncio.CancelledError:
            if not self._timed_out:
                raise
            task.uncancel()
            raise DeadlineExceeded(f"the body was too slow: it did not arrive within {BODY_TIMEOUT_S:g} s") from None
        finally:
            if self._timer is not None:
                self._timer.cancel()

    def _start_timer(self, task: "asyncio.Task[object]") -> None:
        # asyncio.timeout costs three times as much.
        loop = task.get_loop()
        if self._body_started_at is None:
            self._body_started_at = time.monotonic()
        timeout_s = BODY_TIMEOUT_S + self.context.bytes_in / BODY_BYTES_PER_S_MIN if self._slow else SLOW_AFTER_S
        self._timer = loop.call_at(self._body_started_at + timeout_s, self._on_body_timeout, task)

    def _on_body_timeout(self, task: "asyncio.Task[object]") -> None:
        """Free the request's slot at the first timeout, and cancel the request at the second."""
        if self._slow:
            self._timed_out = task.cancel()
        else:
            self._slow = True
            self.reservation.leave(self.context.bytes_in)
            self._start_timer(task)


def request_id(headers: Mapping[bytes, bytes]) -> str:
    """Return the id that the client has sent, or a new one if there is none or it is invalid."""
    if (given := headers.get(b"x-request-id")) is not None and _REQUEST_ID.fullmatch(given):
        return given.decode()
    # The id only distinguishes requests and protects nothing, so it need not be unpredictable.
    return f"{random.getrandbits(128):032x}"


def _with_short_startup_errors(send: Send) -> Send:
    """Return a `send` that reduces the traceback of a StartError to its message."""

    async def send_short(message: Message) -> None:
        if message["type"] == "lifespan.startup.failed":
            lines = str(message.get("message", "")).splitlines() or [""]
            _, expected, reason = lines[-1].partition(f"{StartError.__name__}: ")
            message = {**message, "message": f"cannot start: {reason}"} if expected else message
        await send(message)

    return send_short


def _error_response(error: Exception, context: RequestContext) -> Response:
    if isinstance(error, TableError):
        return ProblemResponse(error)
    log.error("request %s %s failed", context.method, context.request_id, exc_info=error)
    return ProblemResponse(Internal("internal error: the log of the service has the details", applied="unknown"))


def _drop_tracebacks(error: BaseException) -> None:
    """Remove the tracebacks of an error and of the errors before it.

    The frames of a traceback have the body of the request, and often refer to the error itself. The body would stay in
    memory until the next full garbage collection, and rejected requests cause few of these.
    """
    found: BaseException | None = error
    while found is not None:
        found.__traceback__ = None
        found = found.__context__


def _shutdown_error(context: RequestContext) -> TableError:
    """Return the error for a request that the shutdown of the service has cancelled."""
    applied: Applied = "no" if context.reads else "unknown"
    return Overloaded("the service stopped before the request was finished", applied=applied)
