"""A listener for probes and metrics only: they stay in reach where the service itself asks for certificates."""

from starlette.types import ASGIApp, Receive, Scope, Send

from .door import PROBES
from .routes import problem_response
from .wire.problems import NotFound


def probes_only(app: ASGIApp) -> ASGIApp:
    """Return an application that answers probes and metrics as `app` does, and has nothing else."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in PROBES:
            await app(scope, receive, send)
            return
        await problem_response(NotFound("here are only probes and metrics"))(scope, receive, send)

    return answer
