"""The application of the second listener, which serves probes and metrics to clients without a certificate."""

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ..http import PROBES
from ..http.wire import problems


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
