"""A listener for probes and metrics only: they stay in reach where the service itself asks for certificates."""

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ..http import PROBES
from ..http.wire import problems


def probes_only(app: ASGIApp) -> ASGIApp:
    """Return an application that answers probes and metrics as `app` does, and has nothing else."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in PROBES:
            await app(scope, receive, send)
            return
        refusal = problems.NotFound("here are only probes and metrics")
        answered = Response(problems.encode(refusal), problems.status(refusal), media_type=problems.MEDIA_TYPE)
        await answered(scope, receive, send)

    return answer
