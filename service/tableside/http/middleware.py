"""The outermost layer: a request id, bounds on how much is in flight, and no fault that leaves as a bare traceback."""

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
from . import server_scope
from .allowed_hosts import Hosts
from .load_shedder import PROBES, REQUEST_ID, Door, install
from .request_context import CALLER_KEY, SCOPE_KEY, Notes, Observer
from .request_lifecycle import Exchange
from .responses import problem_response

log = logging.getLogger(__name__)

_READS = frozenset({"GET", "HEAD"})


class StartError(Exception):
    """The service cannot start, for a reason that the message gives in one line."""


class Edge:
    """Wraps the application; pure ASGI, since it runs for every request.

    It hands requests to the service's own routes itself. What those do not take (the documentation pages, and paths
    and methods to refuse) goes through the framework's other layers, which would cost more than a whole operation.

    Of a body's declared length no more counts as being in flight than `body_bytes_max`: what is longer is refused.
    """

    def __init__(
        self,
        app: ASGIApp,
        routes: Sequence[Route],
        in_flight: InFlight,
        auth: Auth,
        hosts: Hosts,
        observers: Sequence[Observer] = (),
        *,
        body_bytes_max: int = 16 * 2**20,
    ) -> None:
        self._app = app
        self._routes = [(route.path_regex.match, route.methods or (), route) for route in routes]
        self._in_flight = in_flight
        self._door = Door(in_flight)
        self._auth = auth
        self._hosts = hosts
        self._observers = observers
        self.body_bytes_max = body_bytes_max

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or shed it; answer what goes wrong as a problem."""
        if scope["type"] != "http":
            install(scope, self._door)
            await self._app(scope, receive, _without_traceback(send))
            return
        request_id, declared = _head(scope)
        method = scope["method"]
        notes = scope[SCOPE_KEY] = Notes(request_id, method, reads=method in _READS)
        for observer in self._observers:
            observer.began(scope, notes)
        exchange = Exchange(notes, receive, send, self._in_flight)
        try:
            if server_scope.on_disconnect(scope, exchange.left):
                await self._answered(scope, exchange, min(declared, self.body_bytes_max))
        finally:
            server_scope.clear(scope)
            exchange.leave()
            notes.seconds = time.perf_counter() - notes.started
            for observer in self._observers:
                observer.ended(scope, notes)

    async def _answered(self, scope: Scope, exchange: Exchange, declared: int) -> None:
        notes = exchange.notes
        try:
            self._hosts.check(scope)
            # Before the bounds on what is in flight: who has no token takes no place from those who have one.
            caller = self._auth.admit(scope)
            _note_caller(scope, notes, caller if isinstance(caller, Caller) else await caller)
            app = self._asked(scope, notes)
            if scope["path"] in PROBES:
                await app(scope, exchange.receive, exchange.send)
                return
            exchange.enter(declared)
            await app(scope, exchange.receive, exchange.send)
        except ClientDisconnect:
            return  # There is nobody to answer, and nothing was attempted.
        except asyncio.CancelledError:
            if exchange.cancelled_as_left() or notes.status:
                return
            await _refusal(_stopped(notes), notes)(scope, exchange.receive, exchange.send)
        except Exception as error:
            if notes.status:
                raise
            exchange.leave()
            await _refusal(error, notes)(scope, exchange.receive, exchange.send)

    def _asked(self, scope: Scope, notes: Notes) -> ASGIApp:
        """Return who answers a request. A route's own way to say so takes three times as long."""
        path, method = scope["path"], scope["method"]
        for match, methods, route in self._routes:
            if method in methods and (found := match(path)) is not None:
                notes.route = route.path
                scope["path_params"] = found.groupdict()
                return route.app
        return self._app


def _note_caller(scope: Scope, notes: Notes, caller: Caller) -> None:
    """Pass the caller on to the endpoint, the log and the rate limits. Raise Forbidden for metrics without `admin`."""
    scope[CALLER_KEY] = caller
    if not caller.name:
        return
    notes.caller = caller.name
    CALLER.set(caller.name)
    if scope["path"] == "/metrics" and not caller.admin:
        raise Forbidden(f"the metrics are for admins, and the caller {caller.name!r} is none")


def _without_traceback(send: Send) -> Send:
    """Say in one line why the service does not start, where that is expected trouble."""

    async def send_short(message: Message) -> None:
        if message["type"] == "lifespan.startup.failed":
            lines = str(message.get("message", "")).splitlines() or [""]
            _, expected, why = lines[-1].partition(f"{StartError.__name__}: ")
            message = {**message, "message": f"cannot start: {why}"} if expected else message
        await send(message)

    return send_short


def _refusal(error: Exception, notes: Notes) -> Response:
    if isinstance(error, TableError):
        return problem_response(error)
    log.error("request %s %s failed", notes.method, notes.request_id, exc_info=error)
    return problem_response(Internal("a fault of the service; its log has what happened", applied="unknown"))


def _stopped(notes: Notes) -> TableError:
    """Return what is said of a request that was cancelled, which only the end of the service does."""
    return Overloaded("the service stopped before this was finished", applied="no" if notes.reads else "unknown")


def _head(scope: Scope) -> tuple[str, int]:
    """Return the request's id, made if it has none, and how many bytes its body has, 0 if that is not said."""
    request_id, declared = "", 0
    for name, value in scope["headers"]:
        if name == b"content-length":
            declared = int(value)  # the server refuses what is no number
        elif name == b"x-request-id" and REQUEST_ID.fullmatch(value):
            request_id = value.decode()
    return request_id or f"{random.getrandbits(128):032x}", declared  # it tells requests apart, and guards nothing
