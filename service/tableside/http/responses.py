"""Responses built from values: a record, a JSON document, or an error as problem details."""

from collections.abc import Sequence
from typing import Any

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ..auth import Unauthenticated
from ..core import TableError
from .request_context import context_of
from .wire import json_batch, problems
from .wire.answers import Answer, rfc3339


def json_response(document: object) -> Response:
    """Return a response with the document as its body."""
    return Response(orjson.dumps(document), media_type=json_batch.MEDIA_TYPE)


def record_response(answer: Answer, partitions: Sequence[int] = (), age_s: float | None = None) -> Response:
    """Return the response to a single operation.

    `partitions` are those that a partitioned table sent it to, and `age_s` is the age of a record from a cache.
    """
    if answer.error is None:
        response: Response = RecordResponse(answer)
    elif answer.partitions is None:
        response = problem_response(answer.error)
    else:
        each = orjson.Fragment(json_batch.encode_partitions(answer.partitions))
        response = problem_response(answer.error, members={"partitions": each})
    if age_s is not None:
        response.raw_headers.append((b"age", b"%d" % age_s))
    if partitions:
        response.raw_headers.append((b"tableside-partitions", ",".join(map(str, partitions)).encode()))
    return response


def problem_response(
    error: TableError, extra_headers: dict[str, str] | None = None, members: dict[str, Any] | None = None
) -> Response:
    """Return an error as problem details (RFC 9457); `members` are added to the document."""
    extra_headers = dict(extra_headers or {})
    if error.retry_after_s is not None:
        extra_headers["Retry-After"] = str(max(1, round(error.retry_after_s)))
    if isinstance(error, Unauthenticated):
        extra_headers["WWW-Authenticate"] = error.challenge
    content = orjson.dumps({**problems.problem(error), **(members or {})})
    return ProblemResponse(error.code, content, problems.status(error), extra_headers)


class RecordResponse(Response):
    """A record or the success of a write.

    It encodes its headers itself, because Starlette's general way takes twice the time.
    """

    def __init__(self, answer: Answer) -> None:
        self.status_code = answer.status
        self.background = None
        self.body = b"" if answer.value is None else answer.value
        self.raw_headers = []
        if answer.value is not None:
            self.raw_headers += [
                (b"content-length", b"%d" % len(answer.value)),
                (b"content-type", json_batch.MEDIA_TYPE.encode()),
            ]
        if answer.etag is not None:
            self.raw_headers.append((b"etag", b'"%b"' % answer.etag.encode()))
        if answer.expires_ms:
            self.raw_headers.append((b"tableside-expires-at", rfc3339(answer.expires_ms).encode()))
        if answer.replayed:
            self.raw_headers.append((b"tableside-replayed", b"true"))
        if answer.partitions == ():
            self.raw_headers.append((b"tableside-dropped", b"true"))


class ProblemResponse(Response):
    """Problem details that put their error code into the request's context for the log, the trace and the metrics."""

    def __init__(self, code: str, content: bytes, status: int, extra_headers: dict[str, str]) -> None:
        super().__init__(content, status, extra_headers, media_type=problems.MEDIA_TYPE)
        self._code = code

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""
        context_of(scope).code = self._code
        await super().__call__(scope, receive, send)
