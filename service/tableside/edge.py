"""The outermost layer: a request id, a bound on how much is in flight, and no fault that leaves as a bare traceback."""

import logging
import random
import re
from collections.abc import Sequence

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .errors import Internal, Overloaded, TableError
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

    def __init__(self, app: ASGIApp, routes: Sequence[BaseRoute], in_flight_max: int) -> None:
        self._app = app
        self._routes = routes
        self._in_flight_max = in_flight_max
        self._in_flight = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or shed it; answer what goes wrong as a problem."""
        if scope["type"] != "http":
            await self._app(scope, receive, _without_traceback(send))
            return
        request_id = _request_id(scope)
        started = False

        async def send_with_id(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                message["headers"].append((b"x-request-id", request_id))
            await send(message)

        if self._in_flight >= self._in_flight_max and scope["path"] not in _PROBES:
            shed = Overloaded(f"{self._in_flight_max} requests are in flight", retry_after_s=1)
            await problem_response(shed)(scope, receive, send_with_id)
            return
        self._in_flight += 1
        try:
            await self._dispatch(scope, receive, send_with_id)
        except ClientDisconnect:
            return  # There is nobody to answer, and nothing was attempted.
        except Exception as error:
            if started:
                raise
            await _refusal(error, scope, request_id)(scope, receive, send_with_id)
        finally:
            self._in_flight -= 1

    async def _dispatch(self, scope: Scope, receive: Receive, send: Send) -> None:
        for route in self._routes:
            match, child_scope = route.matches(scope)
            if match is Match.FULL:
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


def _refusal(error: Exception, scope: Scope, request_id: bytes) -> Response:
    if isinstance(error, TableError):
        return problem_response(error)
    log.error("request %s %s failed", scope["method"], request_id.decode(), exc_info=error)
    return problem_response(Internal("a fault of the service; its log has what happened", applied="unknown"))


def _request_id(scope: Scope) -> bytes:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
            given: bytes = value
            return given
    return b"%032x" % random.getrandbits(128)  # it tells requests apart, and guards nothing
