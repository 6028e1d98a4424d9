"""The outermost layer: a request id, a bound on how much is in flight, and no fault that leaves as a bare traceback."""

import logging
import re
import uuid

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .errors import Internal, Overloaded
from .routes import problem_response

log = logging.getLogger(__name__)

_PROBES = frozenset({"/livez", "/readyz", "/metrics"})
_REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,128}")


class Edge:
    """Wraps the application; pure ASGI, since it runs for every request."""

    def __init__(self, app: ASGIApp, in_flight_max: int) -> None:
        self._app = app
        self._in_flight_max = in_flight_max
        self._in_flight = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or shed it; answer a fault of the application as a problem."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _request_id(scope)
        started = False

        async def send_with_id(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                message["headers"] = [*message["headers"], (b"x-request-id", request_id)]
            await send(message)

        if self._in_flight >= self._in_flight_max and scope["path"] not in _PROBES:
            shed = Overloaded(f"{self._in_flight_max} requests are in flight", retry_after_s=1)
            await problem_response(shed)(scope, receive, send_with_id)
            return
        self._in_flight += 1
        try:
            await self._app(scope, receive, send_with_id)
        except Exception:
            log.exception("request %s %s failed", scope["method"], request_id.decode())
            if started:
                raise
            fault = Internal("a fault of the service; its log has what happened", applied="unknown")
            await problem_response(fault)(scope, receive, send_with_id)
        finally:
            self._in_flight -= 1


def _request_id(scope: Scope) -> bytes:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
            given: bytes = value
            return given
    return uuid.uuid4().hex.encode()
