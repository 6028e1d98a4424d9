"""Responses built from values: a JSON document, an encoded body, or an error as problem details."""

from collections.abc import Sequence
from typing import Any

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ..auth import Unauthenticated
from ..core import TableError, Yielder
from .request_context import SCOPE_KEY, context_of
from .wire import problems
from .wire.answers import JSON, Encoded


def json_response(document: object, status: int = 200) -> Response:
    """Return a response with the document as its body."""
    return Response(orjson.dumps(document), status, media_type=JSON)


def encoded_response(encoded: Encoded, media_type: str, headers: dict[str, str] | None = None) -> Response:
    """Return a response with an encoded body."""
    if isinstance(encoded, bytes):
        return Response(encoded, headers=headers, media_type=media_type)
    return PartsResponse(encoded, headers, media_type)


class ProblemResponse(Response):
    """An error as problem details (RFC 9457). `members` are added to the document.

    It puts the error code into the request's context for the log, the trace and the metrics.
    """

    def __init__(
        self, error: TableError, extra_headers: dict[str, str] | None = None, members: dict[str, Any] | None = None
    ) -> None:
        extra_headers = dict(extra_headers or {})
        if error.retry_after_s is not None:
            extra_headers["Retry-After"] = str(max(1, round(error.retry_after_s)))
        if isinstance(error, Unauthenticated):
            extra_headers["WWW-Authenticate"] = error.challenge
        if isinstance(error, problems.MethodNotAllowed):
            extra_headers["Allow"] = error.allowed
        content = orjson.dumps({**problems.problem(error), **(members or {})})
        super().__init__(content, problems.status(error), extra_headers, media_type=problems.MEDIA_TYPE)
        self._code = error.code

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""
        if SCOPE_KEY in scope:
            context_of(scope).code = self._code
        await super().__call__(scope, receive, send)


class PartsResponse(Response):
    """A response whose body is in parts, which are sent one after the other without being joined."""

    def __init__(self, parts: Sequence[bytes | memoryview], headers: dict[str, str] | None, media_type: str) -> None:
        length = sum(map(len, parts))
        super().__init__(headers={**(headers or {}), "Content-Length": str(length)}, media_type=media_type)
        self._parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        yielder = Yielder()
        for part in self._parts:
            await yielder.maybe_yield()
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
