"""Errors as problem details (RFC 9457), the HTTP status of each code, and the errors that only HTTP has."""

from collections.abc import Iterable

from ...core import JsonObject, TableError

MEDIA_TYPE = "application/problem+json"

CODES: dict[str, tuple[int, str]] = {
    "malformed_request": (400, "the request cannot be parsed, or its structure is invalid"),
    "unauthenticated": (401, "the service requires a bearer token, and the request has none that is valid"),
    "forbidden": (403, "the caller does not have permission"),
    "record_not_found": (404, "there is no such record"),
    "table_not_found": (404, "there is no such table"),
    "generation_not_found": (404, "the table has no such generation, or it was removed"),
    "not_found": (404, "there is no such path"),
    "method_not_allowed": (405, "the path does not support the method"),
    "not_acceptable": (406, "the client accepts none of the available media types"),
    "contended": (409, "concurrent writes caused a conflict; nothing was applied"),
    "generation_sealed": (409, "only a generation that loads takes writes by its number"),
    "precondition_failed": (412, "the record or the table does not have the required version or state"),
    "too_large": (413, "a limit in bytes or in number is exceeded"),
    "unsupported_media_type": (415, "the media type or encoding of the body is not supported"),
    "invalid_operation": (422, "the name of the table, the key, value, update or operation is invalid"),
    "throttled": (429, "a limit of the service or of the store is reached"),
    "internal": (500, "an internal error of the service"),
    "unsupported": (501, "the store or the table lacks the capability that the detail names"),
    "record_unreadable": (502, "the data in the store was not written by the service, and is not a JSON object"),
    "overloaded": (503, "the service is overloaded or shutting down"),
    "store_unavailable": (503, "the store could not be reached, or did not answer"),
    "deadline_exceeded": (504, "the deadline of the operation passed"),
}
"""The status and the meaning of each error code."""


class NotFound(TableError):
    """The path does not exist."""

    code = "not_found"


class MethodNotAllowed(TableError):
    """The path exists, but does not support the method. `allowed` are the methods that it supports."""

    code = "method_not_allowed"

    def __init__(self, allowed: Iterable[str]) -> None:
        super().__init__("the path does not support this method")
        self.allowed = ", ".join(sorted(allowed))


class NotAcceptable(TableError):
    """The client accepts none of the available media types."""

    code = "not_acceptable"


class UnsupportedMediaType(TableError):
    """The media type or encoding of the body is not supported."""

    code = "unsupported_media_type"


def status(error: TableError) -> int:
    """Return the HTTP status of an error."""
    return CODES[error.code][0]


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
