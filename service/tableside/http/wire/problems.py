"""Errors as problem details (RFC 9457), the HTTP status of each code, and the errors that only HTTP has."""

import orjson

from ...core import JsonObject, TableError

MEDIA_TYPE = "application/problem+json"

STATUS: dict[str, int] = {
    "malformed_request": 400,
    "unauthenticated": 401,
    "forbidden": 403,
    "record_not_found": 404,
    "table_not_found": 404,
    "not_found": 404,
    "method_not_allowed": 405,
    "not_acceptable": 406,
    "contended": 409,
    "precondition_failed": 412,
    "too_large": 413,
    "unsupported_media_type": 415,
    "invalid_operation": 422,
    "throttled": 429,
    "internal": 500,
    "unsupported": 501,
    "record_unreadable": 502,
    "overloaded": 503,
    "store_unavailable": 503,
    "deadline_exceeded": 504,
}


class NotFound(TableError):
    """The path does not exist."""

    code = "not_found"


class MethodNotAllowed(TableError):
    """The path exists, but does not support the method."""

    code = "method_not_allowed"


class NotAcceptable(TableError):
    """The client accepts none of the available media types."""

    code = "not_acceptable"


class UnsupportedMediaType(TableError):
    """The media type or encoding of the body is not supported."""

    code = "unsupported_media_type"


def status(error: TableError) -> int:
    """Return the HTTP status of an error."""
    return STATUS[error.code]


def problem(error: TableError) -> JsonObject:
    """Return the problem details of an error."""
    details: JsonObject = {
        "type": f"urn:tableside:problem:{error.code}",
        "title": error.code.replace("_", " ").capitalize(),
        "status": status(error),
        "detail": error.detail,
        "code": error.code,
        "retriable": error.retriable,
        "applied": error.applied,
    }
    if error.retry_after_s is not None:
        details["retry_after_s"] = error.retry_after_s
    return details


def encode(error: TableError) -> bytes:
    """Return the problem details of an error as JSON text."""
    return orjson.dumps(problem(error))
