"""The endpoints of single records."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import orjson
from starlette.responses import Response
from starlette.routing import Route

from ...auth import Caller
from ...core import (
    Delete,
    Get,
    InvalidOperation,
    Key,
    MalformedRequest,
    Operation,
    Record,
    TableError,
    TableSpec,
    run_in_thread,
    updates,
    values,
)
from ..responses import problem_response
from ..wire import json_batch, operation_members, request_headers
from ..wire.answers import Answer, answer, rfc3339
from ..wire.partitions import choose_partitions, operation_partitions, parse_query
from ..wire.update_bodies import update_members
from .endpoint import SHORT_BODY_BYTES_MAX, TableRequest, deadline_s, table_route

JSON, MERGE_PATCH = json_batch.MEDIA_TYPE, "application/merge-patch+json"

Decode: TypeAlias = Callable[[TableSpec, bytes], dict[str, Any]]
"""Returns the members of an operation in a body. Raises a TableError if it is not valid."""

_CONTENT_TYPE = (b"content-type", JSON.encode())


def route() -> Route:
    """Return the route of single records."""
    return table_route(
        "/v1/tables/{table}/records/{key:path}",
        _check_permission,
        operations=1,
        GET=get_record,
        PUT=put_record,
        PATCH=patch_record,
        DELETE=delete_record,
    )


def _check_permission(request: TableRequest, caller: Caller) -> None:
    writes = request.method not in ("GET", "HEAD")
    if writes:
        caller.check("write", request.table_name)
    if not writes or (request.method != "DELETE" and request_headers.preferences(request).representation):
        caller.check("read", request.table_name)


async def get_record(request: TableRequest) -> Response:
    """Respond with one record."""
    table = await request.catalog.table(request.table_name)
    options = request_headers.read_options(request, JSON)
    spec = table.spec
    operation = Get(spec.key.from_path(request.key_segments), options.max_age_s)
    if options.partitions is not None:
        operation = Get(operation.key, operation.max_age_s, choose_partitions(spec, parse_query(options.partitions)))
    outcome = await table.one(operation, options.wait_s)
    found = answer(outcome, options.fields)
    text = options.if_none_match
    if text is not None and found.etag is not None and request_headers.matches_etag(text, found.etag):
        found = Answer(304, None, found.etag, found.expires_ms)
    age_s = outcome.age_s if isinstance(outcome, Record) else None
    return _response(found, operation_partitions(spec, operation) if spec.partitions else (), age_s)


async def put_record(request: TableRequest) -> Response:
    """Replace or create one record. The body is its value."""
    request_headers.media_type(request, (JSON,), default=JSON)
    body = await request.read_body()
    return await _write(request, {"op": "put", "if_absent": request_headers.create_only(request)}, body, _put_members)


async def patch_record(request: TableRequest) -> Response:
    """Change one record by a merge patch, or by an update with a default."""
    try:
        media = request_headers.media_type(request, (JSON, MERGE_PATCH))
    except TableError as error:
        return problem_response(error, {"Accept-Patch": f"{JSON}, {MERGE_PATCH}"})
    body = await request.read_body()
    if request_headers.create_only(request):
        raise InvalidOperation("If-None-Match is not supported for an update")
    return await _write(request, {"op": "update"}, body, _update_members if media == JSON else _patch_members)


async def delete_record(request: TableRequest) -> Response:
    """Delete one record."""
    if request_headers.create_only(request):
        raise InvalidOperation("If-None-Match is not supported for a delete")
    return await _write(request, {"op": "delete"})


def _put_members(spec: TableSpec, body: bytes) -> dict[str, Any]:
    spec.check_value(body)
    return {"value": values.parse(body)}


def _update_members(spec: TableSpec, body: bytes) -> dict[str, Any]:
    operation_members.check_value_texts(spec, body)
    return update_members(body)


def _patch_members(spec: TableSpec, body: bytes) -> dict[str, Any]:
    return {"update": updates.parse_merge_patch(values.parse(body))}


async def _write(
    request: TableRequest,
    members: dict[str, Any],
    body: bytes = b"",
    decode: Decode = lambda spec, body: {},
) -> Response:
    """Do a write with these members and those in its body. If the body is long, its deadline counts from its end."""
    found = await request.catalog.table_or_spec(request.table_name)
    spec = found if isinstance(found, TableSpec) else found.spec
    key, preferences = spec.key.from_path(request.key_segments), request_headers.NO_PREFERENCES
    if request_headers.has_write_options(request):
        preferences = request_headers.preferences(request)
        members |= _parameters(request, members["op"], preferences)
    build, wait_s = partial(_operation, spec, key, members, body, decode), preferences.wait_s
    if is_long := len(body) > SHORT_BODY_BYTES_MAX:
        operation = await run_in_thread(build, request.received_at + deadline_s(found, wait_s))
    else:
        operation = build()
    partitions = operation_partitions(spec, operation) if spec.partitions else ()
    if preferences.representation and len(partitions) > 1 and not isinstance(operation, Delete):
        raise InvalidOperation("a value cannot be returned from several partitions: use a batch")
    table = await request.catalog.table_to_write(request.table_name) if isinstance(found, TableSpec) else found
    if is_long:
        wait_s = request.received_at + deadline_s(table, wait_s) - time.monotonic()
    response = _response(answer(await table.one(operation, wait_s, request.context.bytes_in)), partitions)
    if preferences.representation and response.status_code in (200, 201):
        response.headers["Preference-Applied"] = "return=representation"
    return response


def _operation(spec: TableSpec, key: Key, members: dict[str, Any], body: bytes, decode: Decode) -> Operation:
    """Decode the body, and return the operation."""
    decoded = decode(spec, body)
    if "ttl_s" in members and decoded.get("ttl_s") is not None:
        raise MalformedRequest("ttl_s occurs twice: in the query and in the body")
    return operation_members.build(spec, members["op"], key, decoded | members)


def _parameters(request: TableRequest, kind: str, preferences: request_headers.Preferences) -> dict[str, Any]:
    """Return the members of a write that the request has as headers and query parameters."""
    members: dict[str, Any] = {
        "if_match": request_headers.if_match(request),
        "token": request_headers.token(request),
    }
    query = request_headers.query_parameters(request, ("partitions",) if kind == "delete" else ("partitions", "ttl_s"))
    if "partitions" in query:
        members["partitions"] = parse_query(query["partitions"])
    if kind == "delete":
        return members
    if (ttl_s := request_headers.ttl_s(query.get("ttl_s"))) is not None:
        members["ttl_s"] = ttl_s
    members["return"] = preferences.representation
    if preferences.representation:
        request_headers.check_accepts(request, JSON)
    return members


def _response(answer: Answer, partitions: Sequence[int] = (), age_s: float | None = None) -> Response:
    """Return the response to a single operation.

    `partitions` are the partitions of the table that received it. `age_s` is the age of a record from a cache.
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
                _CONTENT_TYPE,
            ]
        if answer.etag is not None:
            self.raw_headers.append((b"etag", b'"%b"' % answer.etag.encode()))
        if answer.expires_ms:
            self.raw_headers.append((b"tableside-expires-at", rfc3339(answer.expires_ms).encode()))
        if answer.replayed:
            self.raw_headers.append((b"tableside-replayed", b"true"))
        if answer.partitions == ():
            self.raw_headers.append((b"tableside-dropped", b"true"))
