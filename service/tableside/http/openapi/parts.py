"""Parameters, headers and responses that several operations share."""

from collections.abc import Sequence
from typing import Any, TypeAlias

from ...core import MalformedRequest
from ...core.keys import STRING_BYTES_MAX
from ...settings import NAME
from ..wire import problems
from ..wire.operation_members import WRITER_CHARACTERS_MAX

Fragment: TypeAlias = dict[str, Any]
"""A part of the document, as JSON."""

JSON = "application/json"
ARROW = "application/vnd.apache.arrow.stream"
MERGE_PATCH = "application/merge-patch+json"

_ETAGS = r'^(\*|(W/)?"[!#-~]*"(, *(W/)?"[!#-~]*")*)$'
_ETAG_EXAMPLE = '"18798f0c2a51e3d4"'


def enum(*values: str) -> Fragment:
    """Return the schema of a string that is one of these values."""
    return {"type": "string", "enum": list(values)}


def _parameter(name: str, where: str, description: str, schema: Fragment, example: object = None) -> Fragment:
    found: Fragment = {"name": name, "in": where, "description": description, "schema": schema}
    if where == "path":
        found["required"] = True
    if example is not None:
        found["example"] = example
    return found


_IDEMPOTENCY_KEY = rf'^([!#-~]{{1,{WRITER_CHARACTERS_MAX}}}|"[!#-[\]-~]{{1,{WRITER_CHARACTERS_MAX}}}")$'

_TTL = {"type": "number", "minimum": -1}

PARAMETERS: Fragment = {
    "table": _parameter("table", "path", "The table's name.", {"type": "string", "pattern": NAME}, "profiles"),
    "key": _parameter(
        "key",
        "path",
        "The record's key, percent-encoded. An integer is decimal. A composite key has one segment per part.",
        {"type": "string", "minLength": 1, "maxLength": STRING_BYTES_MAX},
        "user-1",
    ),
    "fields": _parameter(
        "fields",
        "query",
        "Comma-separated names of the top-level members to return.",
        {"type": "string"},
        "name,visits",
    ),
    "ttl_s": _parameter(
        "ttl_s",
        "query",
        "Seconds until the record expires; -1 is never. Without it a put takes the table's default, and an update "
        "keeps the expiry that the record has.",
        _TTL,
        3600,
    ),
    "partitions": _parameter(
        "partitions",
        "query",
        "For a partitioned table: the comma-separated indexes of the target partitions; `all`; `default`, the "
        "partition of the key, which is the default; or nothing, for no partition. A get needs exactly one.",
        {"type": "string", "pattern": r"^(all|default|-1|[0-9]{1,3}(,[0-9]{1,3})*)?$"},
        "0,2",
    ),
    "If-Match": _parameter(
        "If-Match",
        "header",
        "Comma-separated etags in quotes: the write is applied only if the record has one of these versions. "
        "`*` is any version. For an absent record the response is 412.",
        {"type": "string", "pattern": _ETAGS},
        _ETAG_EXAMPLE,
    ),
    "If-None-Match": _parameter(
        "If-None-Match",
        "header",
        "Etags in quotes, or `*`: if the record has one of these versions, the response is 304 without a body.",
        {"type": "string", "pattern": _ETAGS},
        _ETAG_EXAMPLE,
    ),
    "If-Absent": _parameter(
        "If-None-Match", "header", "`*`: the write is applied only if the record does not exist.", enum("*"), "*"
    ),
    "Prefer": _parameter(
        "Prefer",
        "header",
        "RFC 7240. `return=representation` requests the value after a write. `wait=S` is the client's deadline in "
        "seconds: after it the response is 504. Unknown preferences are ignored.",
        {"type": "string"},
        "return=representation, wait=10",
    ),
    "Cache-Control": _parameter(
        "Cache-Control",
        "header",
        "RFC 9111, for a table that has a cache. `no-cache` reads from the store and refreshes the cache. `max-age=N`: "
        "a record from the cache is at most N seconds old. Other directives are ignored. In a batch it applies to "
        "every get.",
        {"type": "string"},
        "max-age=5",
    ),
    "Tableside-Token": _parameter(
        "Tableside-Token",
        "header",
        "`<writer>/<sequence>`: identifies this write, so that a repetition is acknowledged and not applied. The "
        "writer sends its sequences for one key in ascending order.",
        {"type": "string", "pattern": f"^[!-~]{{1,{WRITER_CHARACTERS_MAX}}}/[0-9]{{1,18}}$"},
        "etl-3/42",
    ),
    "Idempotency-Key": _parameter(
        "Idempotency-Key",
        "header",
        "Identifies this write: repeating the request with the same key does not apply the write again. The "
        "same as the token `<key>/1`. Quotes around the key are not part of it. Cannot be combined with "
        "`Tableside-Token`.",
        {"type": "string", "pattern": _IDEMPOTENCY_KEY},
        '"8e03978e-40d5-43e8-bc93-6894a57f9324"',
    ),
    "X-Request-Id": _parameter(
        "X-Request-Id",
        "header",
        "Identifies the request in logs, and is returned. Generated unless it has 1 to 128 visible ASCII characters.",
        {"type": "string"},
    ),
    "traceparent": _parameter(
        "traceparent",
        "header",
        "W3C Trace Context; ignored if it is invalid.",
        {"type": "string"},
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    ),
}

HEADERS: Fragment = {
    "X-Request-Id": {
        "description": "The request's id: the client's, or a generated one.",
        "required": True,
        "schema": {"type": "string", "minLength": 1, "maxLength": 128},
    },
    "ETag": {
        "description": "The version of the record: it changes whenever the value does.",
        "required": True,
        "schema": {"type": "string", "pattern": '^"[!#-~]+"$'},
        "example": _ETAG_EXAMPLE,
    },
    "ETag-If-Present": {
        "description": "The version of the record; absent if a replay found the record deleted, or if the write went "
        "to several partitions, or to none.",
        "schema": {"type": "string", "pattern": '^"[!#-~]+"$'},
        "example": _ETAG_EXAMPLE,
    },
    "Tableside-Expires-At": {
        "description": "When the record expires (RFC 3339, UTC); absent if it does not.",
        "schema": {"type": "string", "format": "date-time"},
        "example": "2030-01-01T00:00:00.000Z",
    },
    "Age": {
        "description": "Seconds since the record was read; only if it was not read for this request.",
        "schema": {"type": "integer", "minimum": 0},
        "example": 3,
    },
    "Tableside-Replayed": {
        "description": "The write is a repetition by its token, and was not applied again.",
        "schema": enum("true"),
    },
    "Tableside-Partitions": {
        "description": "For a partitioned table: the indexes of the partitions that the operation was sent to.",
        "schema": {"type": "string", "pattern": "^[0-9]{1,3}(,[0-9]{1,3})*$"},
        "example": "0,2",
    },
    "Tableside-Dropped": {
        "description": "The write named no partition: it was acknowledged, and not applied.",
        "schema": enum("true"),
    },
    "Preference-Applied": {
        "description": "The preference that was applied.",
        "schema": enum("return=representation"),
    },
    "Tableside-Cursor": {
        "description": "The cursor of the next page; absent on the last page.",
        "schema": {"type": "string", "minLength": 1},
    },
    "Retry-After": {
        "description": "Seconds to wait before a retry.",
        "required": True,
        "schema": {"type": "integer", "minimum": 1},
        "example": 1,
    },
    "Retry-After-If-Known": {
        "description": "Seconds to wait before a retry, if known.",
        "schema": {"type": "integer", "minimum": 1},
        "example": 1,
    },
    "WWW-Authenticate": {
        "description": "The authentication scheme.",
        "required": True,
        "schema": enum("Bearer"),
    },
    "Accept-Patch": {
        "description": "The media types of an update.",
        "required": True,
        "schema": enum(f"{JSON}, {MERGE_PATCH}"),
    },
    "Vary": {"description": "The media type depends on `Accept`.", "schema": enum("Accept")},
}


def parameters(*names: str) -> list[Fragment]:
    """Return references to parameters."""
    return [{"$ref": f"#/components/parameters/{name}"} for name in names]


COMMON_PARAMETERS = parameters("X-Request-Id", "traceparent")


def schema(name: str) -> Fragment:
    """Return a reference to a schema."""
    return {"$ref": f"#/components/schemas/{name}"}


def headers(*names: str, required: Sequence[str] = ()) -> Fragment:
    """Return references to headers, including X-Request-Id, which every response has."""
    found = {name.partition("-If-")[0]: {"$ref": f"#/components/headers/{name}"} for name in names}
    return {**found, "X-Request-Id": {"$ref": "#/components/headers/X-Request-Id"}}


def response(description: str, *header_names: str, content: Fragment | None = None, **more: Any) -> Fragment:
    """Return the description of one response."""
    found = {"description": description, "headers": headers(*header_names), **more}
    return found if content is None else {**found, "content": content}


SERVICE_ERRORS = ("overloaded", "internal")
TABLE_ERRORS = (
    *SERVICE_ERRORS,
    "malformed_request",
    "unauthenticated",
    "forbidden",
    "table_not_found",
    "invalid_operation",
    "throttled",
    "unsupported",
    "store_unavailable",
    "deadline_exceeded",
)

_ERROR_DESCRIPTIONS = {
    "malformed_request": "the request cannot be parsed, or its structure is invalid",
    "unauthenticated": "the service requires a bearer token, and the request has none that is valid",
    "forbidden": "the caller does not have permission",
    "record_not_found": "there is no such record",
    "table_not_found": "there is no such table",
    "not_found": "there is no such path",
    "method_not_allowed": "the path does not support this method",
    "not_acceptable": "the client accepts none of the available media types",
    "contended": "concurrent writes caused a conflict; nothing was applied",
    "precondition_failed": "the record does not have the required version or state",
    "too_large": "a limit in bytes or in number is exceeded",
    "unsupported_media_type": "the media type or encoding of the body is not supported",
    "invalid_operation": "the key, value, update or operation is invalid",
    "throttled": "a limit of the service or of the store is reached",
    "internal": "an internal error of the service",
    "unsupported": "the store or the table lacks the capability that the detail names",
    "record_unreadable": "the data in the store was not written by the service, and is not a JSON object",
    "overloaded": "the service is overloaded or shutting down",
    "store_unavailable": "the store could not be reached, or did not answer",
    "deadline_exceeded": "the deadline of the operation passed",
}


def error_responses(*codes: str) -> Fragment:
    """Return the responses for these error codes, by status."""
    by_status: dict[int, list[str]] = {}
    for code in codes:
        by_status.setdefault(problems.STATUS[code], []).append(code)
    return {str(status): _error_response(status, by_status[status]) for status in sorted(by_status)}


_ERROR_HEADERS = {
    401: ("WWW-Authenticate",),
    409: ("Retry-After-If-Known",),
    429: ("Retry-After",),
    503: ("Retry-After",),
}


def _error_response(status: int, codes: Sequence[str]) -> Fragment:
    return response(
        "; ".join(f"`{code}`: {_ERROR_DESCRIPTIONS[code]}" for code in codes),
        *_ERROR_HEADERS.get(status, ()),
        content={problems.MEDIA_TYPE: {"schema": schema("Problem")}},
    )


def example_problem() -> Fragment:
    """Return an example of a problem."""
    return dict(problems.problem(MalformedRequest("not JSON at byte 5: unexpected end of data")))
