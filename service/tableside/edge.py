"""The outermost layer: a request id, bounds on how much is in flight, and no fault that leaves as a bare traceback."""

import logging
import random
import re
import time
from collections.abc import Sequence

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .auth import Auth
from .errors import Internal, TableError
from .in_flight import InFlight
from .notes import SCOPE_KEY, Notes, Observer
from .routes import problem_response

log = logging.getLogger(__name__)

_PROBES = frozenset({"/livez", "/readyz", "/metrics"})
_REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,128}")


class StartError(Exception):
    """The service cannot start, for a reason that the message gives in one line."""


class Edge:
    """Wraps the application; pure ASGI, since it runs for every request.

    It hands requests to the service's own routes itself. What those do not take (the documentation pages, and paths
    and methods to refuse) goes through the framework's other layers, which would cost more than a whole operation.
    """

    def __init__(
        self,
        app: ASGIApp,
        routes: Sequence[BaseRoute],
        in_flight: InFlight,
        auth: Auth,
        observers: Sequence[Observer] = (),
    ) -> None:
        self._app = app
        self._routes = routes
        self._in_flight = in_flight
        self._auth = auth
        self._observers = observers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or shed it; answer what goes wrong as a problem."""
        if scope["type"] != "http":
            await self._app(scope, receive, _without_traceback(send))
            return
        notes = scope[SCOPE_KEY] = Notes(_request_id(scope), scope["method"])
        for observer in self._observers:
            observer.began(scope, notes)
        try:
            await self._answered(scope, receive, send, notes)
        finally:
            notes.seconds = time.perf_counter() - notes.started
            for observer in self._observers:
                observer.ended(scope, notes)

    async def _answered(self, scope: Scope, receive: Receive, send: Send, notes: Notes) -> None:
        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                notes.status = message["status"]
                message["headers"].append((b"x-request-id", notes.request_id.encode()))
            else:
                notes.bytes_out += len(message.get("body", b""))
            await send(message)

        async def received() -> Message:
            message = await receive()
            notes.bytes_in += len(message.get("body", b""))
            return message

        try:
            # Before the bound on what is in flight: who has no token takes no place from those who have one.
            self._auth.admit(scope, notes)
            if scope["path"] in _PROBES:
                await self._dispatch(scope, received, send_with_id, notes)
            else:
                with self._in_flight.requests.held(1):
                    await self._dispatch(scope, received, send_with_id, notes)
        except ClientDisconnect:
            return  # There is nobody to answer, and nothing was attempted.
        except Exception as error:
            if notes.status:
                raise
            await _refusal(error, notes)(scope, receive, send_with_id)

    async def _dispatch(self, scope: Scope, receive: Receive, send: Send, notes: Notes) -> None:
        for route in self._routes:
            match, child_scope = route.matches(scope)
            if match is Match.FULL:
                assert isinstance(route, Route)
                notes.route = route.path
                scope.update(child_scope)
                await route.handle(scope, receive, send)
                return
        await self._app(scope, receive, send)


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


def _request_id(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
            given: str = value.decode()
            return given
    return f"{random.getrandbits(128):032x}"  # it tells requests apart, and guards nothing
