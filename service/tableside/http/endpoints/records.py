"""The endpoints of single records."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any, TypeAlias

import msgspec
import orjson
from fastapi import Depends
from msgspec.structs import replace
from starlette.responses import Response

from ...core import (
    Delete,
    Get,
    InvalidOperation,
    Key,
    MalformedRequest,
    Operation,
    Outcome,
    Record,
    TableError,
    TableSpec,
    Written,
    run_in_thread,
    updates,
    values,
)
from ..responses import ProblemResponse
from ..wire import json_batch, operation_members
from ..wire.answers import JSON, RECORD_NOT_FOUND, rfc3339, status
from ..wire.members import OF_KIND, OUTCOME_MEMBERS, given_by
from ..wire.operation_members import choose_partitions, operation_partitions, update_members
from ..wire.projections import project_value
from ..wire.request_headers import Preferences, matches_etag
from . import parameters
from .document import (
    TABLE_ERRORS,
    WRITE_ERRORS,
    Fragment,
    errors,
    json_body,
    link,
    request_body,
    response,
    without_bodies,
)
from .models import MergePatch, UpdateRequest, Value
from .routing import FORGETS, SHORT_BODY_BYTES_MAX, ServiceRequest, check_read, check_write, new_router

MERGE_PATCH = "application/merge-patch+json"

Decode: TypeAlias = Callable[[TableSpec, bytes], dict[str, Any]]
"""Returns the members of an operation in a body. Raises a TableError if it is not valid."""

_CONTENT_TYPE = (b"content-type", JSON.encode())

RECORD = "/v1/tables/{table}/records/{key:path}"

router = new_router("records")

_SAME = {"table": "$request.path.table", "key": "$request.path.key"}
_VERSION = {**_SAME, "header.If-Match": "$response.header.ETag"}
_CHANGED = {**_SAME, "header.If-None-Match": "$response.header.ETag"}
_ABSENT = {**_SAME, "header.If-None-Match": "*"}
_REPLACE = {
    "replace": link("put_record", "Replace this version.", _VERSION),
    "delete": link("delete_record", "Delete this version.", _VERSION),
}
_AFTER_READ = {"revalidate": link("get_record", "Check whether the record changed.", _CHANGED), **_REPLACE}
_AFTER_WRITE = {
    "read": link("get_record", "Read the record.", _SAME),
    "look": link("head_record", "Read the version of the record.", _SAME),
    "update": link("patch_record", "Update this version.", _VERSION),
    **_REPLACE,
}
_AFTER_DELETE = {
    "make": link("put_record", "Create the record again.", _ABSENT),
    "repeat": link("delete_record", "Delete the absent record, which succeeds.", _SAME),
}

_OUTCOME = [f"Tableside-{member.name.title()}" for member in OUTCOME_MEMBERS]
_FOUND = ("ETag", "Tableside-Expires-At", "Age", "Tableside-Partitions")
_GET_RESPONSES = {
    200: response("The record.", *_FOUND, model=Value, links=_AFTER_READ),
    304: response("The client already has this version.", *_FOUND),
    **errors(*TABLE_ERRORS, "not_acceptable", "record_unreadable", "record_not_found"),
}


def _returned(description: str) -> Fragment:
    names = ("ETag", "Tableside-Expires-At", *_OUTCOME, "Tableside-Partitions", "Preference-Applied")
    return response(
        f"{description} The body is the value, as `Prefer` requested.", *names, model=Value, links=_AFTER_WRITE
    )


def _created(description: str) -> Fragment:
    names = ("ETag-If-Present", "Tableside-Expires-At", "Tableside-Partitions", "Preference-Applied")
    return response(
        f"{description} The body is the value if `Prefer` requested it, else empty.", *names, links=_AFTER_WRITE
    )


def _acknowledged(description: str, links: Fragment = _AFTER_WRITE) -> Fragment:
    names = ("ETag-If-Present", *_OUTCOME, "Tableside-Partitions", "Tableside-Dropped")
    return response(description, *names, links=links)


@router.head(
    RECORD,
    name="head_record",
    summary="Get a record's version and expiry",
    dependencies=[Depends(check_read)],
    responses=without_bodies(_GET_RESPONSES),
)
@router.get(RECORD, dependencies=[Depends(check_read)], responses=_GET_RESPONSES)
async def get_record(
    request: ServiceRequest,
    table: parameters.TableName,
    key: parameters.KeyPath,
    fields: parameters.FieldsQuery = None,
    partitions: parameters.PartitionsQuery = None,
    if_none_match: parameters.IfNoneMatch = None,
    max_age_s: parameters.CacheControl = None,
    prefer: parameters.Prefer = None,
) -> Response:
    """Get a record's value."""
    request.check_accepts()
    if refused := request.refused("all"):
        raise InvalidOperation(f"a get has no {refused[1]}")
    opened = await request.within(prefer, request.catalog.table(table))
    spec = opened.spec
    operation = Get(_key(spec, key), max_age_s)
    if partitions is not None:
        operation = Get(operation.key, operation.max_age_s, choose_partitions(spec, partitions))
    outcome = await opened.one(operation, request.budget(opened, prefer))
    partitions, age_s = operation_partitions(spec, operation) if spec.partitions else (), None
    if isinstance(outcome, Record):
        age_s = outcome.age_s
        if if_none_match is not None and matches_etag(if_none_match, outcome.etag):
            return _finished(RecordResponse(outcome, 304), partitions, age_s)
        if fields is not None:
            outcome = replace(outcome, value=project_value(outcome.value, fields))
    return _finished(_response(outcome), partitions, age_s)


def _key(spec: TableSpec, path: str) -> Key:
    return spec.key.from_path(path.encode("latin-1").split(b"/"))


def _argument(name: str) -> str:
    return name.lower().replace("-", "_")


def _options(kind: str) -> Any:
    """Return a struct of the parameters of a write: those of its members, and others."""
    of_members = {_argument(name): one for member in OF_KIND[kind] for name, one in member.parameters.items()}
    declared = {"partitions": parameters.PartitionsQuery, **of_members, "prefer": parameters.Prefer}
    fields = [(name, annotated, None) for name, annotated in declared.items()]
    return msgspec.defstruct(f"{kind.title()}Options", fields, frozen=True)


_ARGUMENTS = {kind: [(one, _argument(name)) for one in OF_KIND[kind] for name in one.parameters] for kind in OF_KIND}

PutOptions = _options("put")
UpdateOptions = _options("update")
DeleteOptions = _options("delete")

_NOT_GIVEN = {"put": PutOptions(), "update": UpdateOptions(), "delete": DeleteOptions()}


def _given(request: ServiceRequest, kind: str, options: Any) -> dict[str, Any]:
    """Return the members of the operation that the parameters give. Raise NotAcceptable for a value."""
    members: dict[str, Any] = {"op": kind}
    if options == _NOT_GIVEN[kind]:
        return members  # Most requests
    if options.partitions is not None:
        members["partitions"] = options.partitions
    for member, argument in _ARGUMENTS[kind]:
        if (given := getattr(options, argument)) is not None:
            if member.name in members:
                raise MalformedRequest(f"{' and '.join(reversed([*member.parameters]))} cannot be combined")
            members[member.name] = given
    if kind != "delete" and options.prefer is not None and options.prefer.representation:
        request.check_accepts()
        members["return"] = True
    return members


@router.put(
    RECORD,
    dependencies=[Depends(check_write)],
    openapi_extra=request_body({JSON: json_body(Value, example={"name": "Ada", "visits": 1})}),
    responses={
        200: _returned("Written."),
        201: _created("Created, with `If-None-Match: *`."),
        204: _acknowledged("Created or replaced."),
        **errors(*WRITE_ERRORS),
    },
)
async def put_record(
    request: ServiceRequest,
    table: parameters.TableName,
    key: parameters.KeyPath,
    options: Annotated[Any, Depends(PutOptions)],
) -> Response:
    """Put a record.

    Creates the record or replaces its value. A plain PUT answers 204 in both cases. To learn whether the record is new,
    send `If-None-Match: *`: the response is 201 if it was created, and 412 if it existed.
    """
    request.media_type((JSON,), default=JSON)
    body = await request.read_body()
    return await _write(request, key, _given(request, "put", options), options.prefer, body, _put_members)


@router.patch(
    RECORD,
    dependencies=[Depends(check_write)],
    openapi_extra=request_body(
        {
            JSON: json_body(UpdateRequest, example={"update": {"$inc": {"visits": 1}}, "default": {"visits": 0}}),
            MERGE_PATCH: json_body(MergePatch, example={"name": "Ada Lovelace"}),
        }
    ),
    responses={
        200: _returned("Updated."),
        201: _created("Created from the default."),
        204: _acknowledged("Updated."),
        **errors(*WRITE_ERRORS, "record_not_found", headers={415: ["Accept-Patch"]}),
    },
)
async def patch_record(
    request: ServiceRequest,
    table: parameters.TableName,
    key: parameters.KeyPath,
    options: Annotated[Any, Depends(UpdateOptions)],
) -> Response:
    """Update a record, or create it from a default.

    As `application/merge-patch+json` the body is a merge patch, and there is no default. As `application/json` it is an
    object with the update and, optionally, a default and `ttl_s`.
    """
    try:
        media = request.media_type((JSON, MERGE_PATCH))
    except TableError as error:
        return ProblemResponse(error, {"Accept-Patch": f"{JSON}, {MERGE_PATCH}"})
    _refuse_if_none_match(request)
    body = await request.read_body()
    decode = _update_members if media == JSON else _patch_members
    return await _write(request, key, _given(request, "update", options), options.prefer, body, decode)


@router.delete(
    RECORD,
    status_code=204,
    dependencies=[Depends(check_write)],
    responses={
        204: _acknowledged(
            "Deleted, or absent before. It has an etag only if a replay found a later record.", _AFTER_DELETE
        ),
        **errors(*TABLE_ERRORS, "precondition_failed", "contended", "record_unreadable"),
    },
)
async def delete_record(
    request: ServiceRequest,
    table: parameters.TableName,
    key: parameters.KeyPath,
    options: Annotated[Any, Depends(DeleteOptions)],
) -> Response:
    """Delete a record."""
    _refuse_if_none_match(request)
    return await _write(request, key, _given(request, "delete", options), options.prefer)


def _refuse_if_none_match(request: ServiceRequest) -> None:
    if request.header(b"if-none-match") is not None:
        raise InvalidOperation("If-None-Match is only supported for a read and a put")


def _put_members(spec: TableSpec, body: bytes) -> dict[str, Any]:
    spec.check_value(body)
    return {"value": values.parse(body)}


def _update_members(spec: TableSpec, body: bytes) -> dict[str, Any]:
    operation_members.check_value_texts(spec, body)
    return update_members(body)


def _patch_members(spec: TableSpec, body: bytes) -> dict[str, Any]:
    return {"update": updates.parse_merge_patch(values.parse(body))}


async def _write(
    request: ServiceRequest,
    key: str,
    members: dict[str, Any],
    prefer: Preferences | None = None,
    body: bytes = b"",
    decode: Decode = lambda spec, body: {},
) -> Response:
    """Do a write with these members and those in its body."""
    found = await request.within(prefer, request.catalog.table_or_spec(request.table_name))
    spec = found if isinstance(found, TableSpec) else found.spec
    returns = "return" in members
    given = (spec, _key(spec, key), members, body, decode)
    if len(body) > SHORT_BODY_BYTES_MAX:
        operation = await run_in_thread(partial(_operation, *given), request.budget(found, prefer))
    else:
        operation = _operation(*given)
    if isinstance(operation, Delete) and operation.forget:
        request.context.detail = FORGETS
    partitions = operation_partitions(spec, operation) if spec.partitions else ()
    if returns and len(partitions) > 1 and not isinstance(operation, Delete):
        raise InvalidOperation("a value cannot be returned from several partitions: use a batch")
    table = await request.created_table() if isinstance(found, TableSpec) else found
    if (sealed := request.catalog.sealed(request.table_name)) is not None:
        raise sealed
    response = _finished(_response(await table.one(operation, request.budget(table, prefer))), partitions)
    if returns and response.status_code in (200, 201):
        response.headers["Preference-Applied"] = "return=representation"
    return response


def _operation(spec: TableSpec, key: Key, members: dict[str, Any], body: bytes, decode: Decode) -> Operation:
    """Decode the body, and return the operation."""
    decoded = decode(spec, body)
    if "ttl_s" in members and decoded.get("ttl_s") is not None:
        raise MalformedRequest("ttl_s occurs twice: in the query and in the body")
    return operation_members.build(spec, members["op"], key, decoded | members)


def _response(outcome: Outcome) -> Response:
    """Return the response to a single operation."""
    if isinstance(outcome, (Record, Written)):
        return RecordResponse(outcome, status(outcome))
    error = RECORD_NOT_FOUND if outcome is None else outcome
    if error.partitions is None:
        return ProblemResponse(error)
    return ProblemResponse(
        error, members={"partitions": orjson.Fragment(json_batch.encode_partitions(error.partitions))}
    )


def _finished(response: Response, partitions: Sequence[int], age_s: float | None = None) -> Response:
    """Add the age of a record from a cache, and the partitions of the table that received the operation."""
    if age_s is not None:
        response.raw_headers.append((b"age", b"%d" % age_s))
    if partitions:
        response.raw_headers.append((b"tableside-partitions", ",".join(map(str, partitions)).encode()))
    return response


class RecordResponse(Response):
    """A record or the success of a write.

    It encodes its headers itself, because Starlette's general way takes twice the time.
    """

    def __init__(self, outcome: Record | Written, status: int) -> None:
        self.status_code = status
        self.background = None
        value = None if status == 304 else outcome.value
        self.body = b"" if value is None else value
        self.raw_headers = []
        if value is not None:
            self.raw_headers += [(b"content-length", b"%d" % len(value)), _CONTENT_TYPE]
        if outcome.etag is not None:
            self.raw_headers.append((b"etag", b'"%b"' % outcome.etag.encode()))
        if outcome.expires_ms and outcome.value is not None:
            self.raw_headers.append((b"tableside-expires-at", rfc3339(outcome.expires_ms).encode()))
        if isinstance(outcome, Written):
            for name, member in given_by(outcome):
                self.raw_headers.append((b"tableside-%b" % name.encode(), orjson.dumps(member)))
            if outcome.partitions == ():
                self.raw_headers.append((b"tableside-dropped", b"true"))
