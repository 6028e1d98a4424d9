"""Parameters, headers and answers that several operations share."""

from collections.abc import Sequence
from typing import Any, TypeAlias

from ...core import MalformedRequest
from ...core.keys import STRING_BYTES_MAX
from ...settings import NAME
from ..wire import problems
from ..wire.operation_members import WRITER_CHARACTERS_MAX

Described: TypeAlias = dict[str, Any]
"""A piece of the document: JSON as it will stand there."""

JSON = "application/json"
ARROW = "application/vnd.apache.arrow.stream"
MERGE_PATCH = "application/merge-patch+json"

_ETAGS = r'^(\*|(W/)?"[!#-~]*"(, *(W/)?"[!#-~]*")*)$'
_ETAG_EXAMPLE = '"18798f0c2a51e3d4"'


def _parameter(name: str, where: str, description: str, schema: Described, example: object = None) -> Described:
    found: Described = {"name": name, "in": where, "description": description, "schema": schema}
    if where == "path":
        found["required"] = True
    if example is not None:
        found["example"] = example
    return found


_TTL = {"anyOf": [{"const": -1}, {"exclusiveMinimum": 0}], "type": "number"}

PARAMETERS: Described = {
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
        "Names of top-level members, with commas between them: only these are answered.",
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
        "Of a partitioned table: the indexes of the partitions that it goes to, with commas between them; `all`; "
        "`default`, as without it: where the key is placed; or nothing, for nowhere. A get asks exactly one.",
        {"type": "string", "pattern": r"^(all|default|-1|[0-9]{1,3}(,[0-9]{1,3})*)?$"},
        "0,2",
    ),
    "If-Match": _parameter(
        "If-Match",
        "header",
        "Etags in quotes, with commas between them: the write is done only if the record is in one of these versions. "
        "`*` is any version. On an absent record the answer is 412.",
        {"type": "string", "pattern": _ETAGS},
        _ETAG_EXAMPLE,
    ),
    "If-None-Match": _parameter(
        "If-None-Match",
        "header",
        "Etags in quotes, or `*`: if the record is in one of these versions the answer is 304 and has no body.",
        {"type": "string", "pattern": _ETAGS},
        _ETAG_EXAMPLE,
    ),
    "If-Absent": _parameter(
        "If-None-Match", "header", "`*`: the write is done only if there is no such record.", {"const": "*"}
    ),
    "Prefer": _parameter(
        "Prefer",
        "header",
        "RFC 7240. `return=representation` asks for the value after a write. `wait=S` is the caller's deadline in "
        "seconds: past it the answer is 504. What is not known is passed over.",
        {"type": "string"},
        "return=representation, wait=10",
    ),
    "Cache-Control": _parameter(
        "Cache-Control",
        "header",
        "RFC 9111, for a table that has a cache. `no-cache`: the store is asked, and the cache refreshed. `max-age=N`: "
        "an answer from the cache is at most N seconds old. Other directives are passed over. In a batch it holds for "
        "every get.",
        {"type": "string"},
        "max-age=5",
    ),
    "Tableside-Token": _parameter(
        "Tableside-Token",
        "header",
        "`<writer>/<sequence>`: names this write, so that its repetition is acknowledged and not applied. The writer "
        "sends its sequences for one key in rising order.",
        {"type": "string", "pattern": f"^[!-~]{{1,{WRITER_CHARACTERS_MAX}}}/[0-9]{{1,18}}$"},
        "etl-3/42",
    ),
    "X-Request-Id": _parameter(
        "X-Request-Id",
        "header",
        "Names the request in logs; echoed, or made where there is none of 1 to 128 visible ASCII characters.",
        {"type": "string"},
    ),
    "traceparent": _parameter(
        "traceparent",
        "header",
        "W3C Trace Context; passed over where it is not legal.",
        {"type": "string"},
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    ),
}

HEADERS: Described = {
    "X-Request-Id": {
        "description": "The request's id: the caller's, or one made here.",
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
        "description": "The version of the record; not there where a replay found it deleted, nor where it was written "
        "to several partitions, or to none.",
        "schema": {"type": "string", "pattern": '^"[!#-~]+"$'},
        "example": _ETAG_EXAMPLE,
    },
    "Tableside-Expires-At": {
        "description": "When the record expires (RFC 3339, UTC); not there if it does not.",
        "schema": {"type": "string", "format": "date-time"},
        "example": "2030-01-01T00:00:00.000Z",
    },
    "Age": {
        "description": "How many whole seconds ago the record was read; there if it was not read for this request.",
        "schema": {"type": "integer", "minimum": 0},
        "example": 3,
    },
    "Tableside-Replayed": {
        "description": "The token had been seen: nothing was applied now.",
        "schema": {"const": "true"},
    },
    "Tableside-Partitions": {
        "description": "Of a partitioned table: the indexes of the partitions that it went to.",
        "schema": {"type": "string", "pattern": "^[0-9]{1,3}(,[0-9]{1,3})*$"},
        "example": "0,2",
    },
    "Tableside-Dropped": {
        "description": "It was for no partition of the table: acknowledged, and written nowhere.",
        "schema": {"const": "true"},
    },
    "Preference-Applied": {
        "description": "The preference that was followed.",
        "schema": {"const": "return=representation"},
    },
    "Tableside-Cursor": {
        "description": "Where the next page begins; not there after the last one.",
        "schema": {"type": "string", "minLength": 1},
    },
    "Retry-After": {
        "description": "Seconds to wait before asking again.",
        "required": True,
        "schema": {"type": "integer", "minimum": 1},
        "example": 1,
    },
    "Retry-After-If-Known": {
        "description": "Seconds to wait before asking again, where that is known.",
        "schema": {"type": "integer", "minimum": 1},
        "example": 1,
    },
    "WWW-Authenticate": {
        "description": "How to say who asks.",
        "required": True,
        "schema": {"const": "Bearer"},
    },
    "Accept-Patch": {
        "description": "The media types of an update.",
        "required": True,
        "schema": {"const": f"{JSON}, {MERGE_PATCH}"},
    },
    "Vary": {"description": "The media type is chosen by `Accept`.", "schema": {"const": "Accept"}},
}


def parameters(*names: str) -> list[Described]:
    """Return references to parameters."""
    return [{"$ref": f"#/components/parameters/{name}"} for name in names]


COMMON_PARAMETERS = parameters("X-Request-Id", "traceparent")


def schema(name: str) -> Described:
    """Return a reference to a schema."""
    return {"$ref": f"#/components/schemas/{name}"}


def headers(*names: str, required: Sequence[str] = ()) -> Described:
    """Return references to headers, and to the one that every answer has."""
    found = {name.partition("-If-")[0]: {"$ref": f"#/components/headers/{name}"} for name in names}
    return {**found, "X-Request-Id": {"$ref": "#/components/headers/X-Request-Id"}}


def answer(description: str, *header_names: str, content: Described | None = None, **more: Any) -> Described:
    """Return one answer."""
    found = {"description": description, "headers": headers(*header_names), **more}
    return found if content is None else {**found, "content": content}


OF_THE_SERVICE = ("overloaded", "internal")
OF_A_TABLE = (
    *OF_THE_SERVICE,
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

_WHY = {
    "malformed_request": "a parser refuses the request, or the whole of it has the wrong shape",
    "unauthenticated": "the service asks for a bearer token, and none that it knows was given",
    "forbidden": "the caller has no right to do that",
    "record_not_found": "there is no such record",
    "table_not_found": "there is no such table",
    "not_found": "there is no such path",
    "method_not_allowed": "the path does not take this method",
    "not_acceptable": "the caller accepts none of the media types that there are",
    "contended": "others changed the record each time; nothing was applied",
    "precondition_failed": "the record is not in the version, or not in the state, that was asked for",
    "too_large": "a limit in bytes or in number is exceeded",
    "unsupported_media_type": "the body is in a media type, or an encoding, that is not read here",
    "invalid_operation": "it can be read, but is no legal key, value, update or operation",
    "throttled": "a limit of the service or of the store is reached",
    "internal": "a fault of the service",
    "unsupported": "the store or the table lacks the capability that the detail names",
    "record_unreadable": "what the store holds is not the service's, and no JSON object",
    "overloaded": "the service has too much to do, or is about to stop",
    "store_unavailable": "the store could not be asked, or did not answer",
    "deadline_exceeded": "the time given for the operation was over",
}


def refusals(*codes: str) -> Described:
    """Return the answers by which an operation ends with one of these codes, by status."""
    by_status: dict[int, list[str]] = {}
    for code in codes:
        by_status.setdefault(problems.STATUS[code], []).append(code)
    return {str(status): _refusal(status, by_status[status]) for status in sorted(by_status)}


_WITH_REFUSALS = {
    401: ("WWW-Authenticate",),
    409: ("Retry-After-If-Known",),
    429: ("Retry-After",),
    503: ("Retry-After",),
}


def _refusal(status: int, codes: Sequence[str]) -> Described:
    fixed = {"properties": {"code": {"enum": list(codes)}, "status": {"const": status}}}
    return answer(
        "; ".join(f"`{code}`: {_WHY[code]}" for code in codes),
        *_WITH_REFUSALS.get(status, ()),
        content={problems.MEDIA_TYPE: {"schema": {"allOf": [schema("Problem"), fixed]}}},
    )


def example_problem() -> Described:
    """Return a problem as it is answered."""
    return dict(problems.problem(MalformedRequest("not JSON: invalid at byte 5")))
