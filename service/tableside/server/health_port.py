"""The second listener, which serves probes and metrics to clients without a certificate."""

import logging
import socket
import sys

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.config import STARTUP_FAILURE

from ..http import PROBES
from ..http.wire import problems

log = logging.getLogger(__name__)


def probes_socket(host: str, port: int) -> socket.socket:
    """Return a bound socket that worker processes inherit. Exit the process if the port is in use."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        log.error("cannot listen on %s, port %s: %s", host, port, error.strerror)
        sys.exit(STARTUP_FAILURE)
    listener.set_inheritable(True)
    return listener


def probes_only(app: ASGIApp) -> ASGIApp:
    """Return an application that serves the probes and metrics of `app`, and no other path."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in PROBES:
            await app(scope, receive, send)
            return
        error = problems.NotFound("this port serves only probes and metrics")
        response = Response(problems.encode(error), problems.status(error), media_type=problems.MEDIA_TYPE)
        await response(scope, receive, send)

    return serve
