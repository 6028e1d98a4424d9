"""The outermost ASGI layer: request ids, authentication, admission, routing and error responses."""

import asyncio
import logging
import random
import time
from collections.abc import Sequence

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..auth import Auth, Caller, Forbidden
from ..catalog import InFlight
from ..core import Internal, TableError
from ..core.caller_context import CALLER
from ..core.errors import Overloaded
from .allowed_hosts import AllowedHosts
from .load_shedder import PROBES, REQUEST_ID, LoadShedder, install
from .request_context import CALLER_KEY, SCOPE_KEY, Observer, RequestContext
from .request_lifecycle import RequestLifecycle
from .request_spans import RequestSpans
from .responses import problem_response
from .server_scope import DISCONNECT_KEY

log = logging.getLogger(__name__)

_READS = frozenset({"GET", "HEAD"})


class StartError(Exception):
    """The service cannot start, for an expected reason. The message states it in one line."""


class RequestMiddleware:
    """Wraps the application. It is pure ASGI, because it runs for every request.

    It dispatches requests to the service's own routes itself. All other requests (documentation pages, unknown paths
    and methods) go through FastAPI's own layers, which take longer than a whole operation.

    The declared length of a body counts as in flight only up to `body_bytes_max`, because longer bodies are rejected.
    `spans` traces requests if it is set.
    """

    def __init__(
        self,
        app: ASGIApp,
        routes: Sequence[Route],
        in_flight: InFlight,
        auth: Auth,
        hosts: AllowedHosts,
        observers: Sequence[Observer] = (),
        *,
        body_bytes_max: int = 16 * 2**20,
    ) -> None:
        self._app = app
        self._routes = [(route.path_regex.match, route.methods or (), route) for route in routes]
        self._in_flight = in_flight
        self._load_shedder = LoadShedder(in_flight)
        self._auth = auth
        self._hosts = hosts
        self._observers = observers
        self.spans: RequestSpans | None = None
        self.body_bytes_max = body_bytes_max

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Process a request, and report it to the observers when it has ended."""
        if scope["type"] != "http":
            install(scope, self._load_shedder)
            await self._app(scope, receive, _with_short_startup_errors(send))
            return
        request_id, declared_bytes = _read_head(scope)
        method = scope["method"]
        context = scope[SCOPE_KEY] = RequestContext(request_id, method, reads=method in _READS)
        if self.spans is not None:
            self.spans.start(scope, context)
        lifecycle = RequestLifecycle(context, receive, send, self._in_flight)
        try:
            if DISCONNECT_KEY not in scope:  # else the client disconnected while the request waited in the pipeline
                scope[DISCONNECT_KEY] = lifecycle.on_disconnect
                await self._process(scope, lifecycle, min(declared_bytes, self.body_bytes_max))
        finally:
            scope[DISCONNECT_KEY] = None  # The callback would keep scope and lifecycle alive in a reference cycle.
            if lifecycle.reserved:
                lifecycle.leave()
            context.duration_s = time.perf_counter() - context.started_at
            for observer in self._observers:
                observer.request_ended(context)
            if self.spans is not None:  # The span ends last, because log lines contain the current span.
                self.spans.end(scope, context)

    async def _process(self, scope: Scope, lifecycle: RequestLifecycle, declared_bytes: int) -> None:
        context = lifecycle.context
        try:
            if not self._hosts.allows_any:
                self._hosts.check(scope)
            # Authentication precedes admission, so that clients without a token do not occupy slots.
            caller = self._auth.admit(scope)
            _set_caller(scope, context, caller if isinstance(caller, Caller) else await caller)
            endpoint = self._endpoint(scope, context)
            if scope["path"] not in PROBES:
                lifecycle.enter(declared_bytes)
            await endpoint(scope, lifecycle.receive, lifecycle.send)
        except ClientDisconnect:
            return  # The client has gone, and no operation was attempted.
        except asyncio.CancelledError:
            if lifecycle.absorb_cancellation() or context.status:
                return
            await _error_response(_shutdown_error(context), context)(scope, lifecycle.receive, lifecycle.send)
        except Exception as error:
            if context.status:
                raise
            lifecycle.leave()
            await _error_response(error, context)(scope, lifecycle.receive, lifecycle.send)

    def _endpoint(self, scope: Scope, context: RequestContext) -> ASGIApp:
        """Return the application for a request. Starlette's `Route.matches` takes three times as long."""
        path, method = scope["path"], scope["method"]
        for match, methods, route in self._routes:
            if method in methods and (found := match(path)) is not None:
                context.route = route.path
                scope["path_params"] = found.groupdict()
                return route.app
        return self._app


def _set_caller(scope: Scope, context: RequestContext, caller: Caller) -> None:
    """Set the caller for the endpoint, the log and the rate limits. Raise Forbidden for metrics without `admin`."""
    scope[CALLER_KEY] = caller
    if not caller.name:
        return
    context.caller = caller.name
    CALLER.set(caller.name)
    if scope["path"] == "/metrics" and not caller.admin:
        raise Forbidden(f"the metrics require an admin, and the caller {caller.name!r} is not an admin")


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
        return problem_response(error)
    log.error("request %s %s failed", context.method, context.request_id, exc_info=error)
    return problem_response(Internal("internal error: the log of the service has the details", applied="unknown"))


def _shutdown_error(context: RequestContext) -> TableError:
    """Return the error for a request that the shutdown of the service has cancelled."""
    return Overloaded(
        "the service stopped before the request was finished", applied="no" if context.reads else "unknown"
    )


def _read_head(scope: Scope) -> tuple[str, int]:
    """Return the request's id, generated if it has none, and the declared length of its body, 0 if it has none."""
    request_id, declared_bytes = "", 0
    for name, value in scope["headers"]:
        if name == b"content-length":
            declared_bytes = int(value)  # The server has rejected invalid numbers.
        elif name == b"x-request-id" and REQUEST_ID.fullmatch(value):
            request_id = value.decode()
    # The id only distinguishes requests and protects nothing, so it need not be unpredictable.
    return request_id or f"{random.getrandbits(128):032x}", declared_bytes
