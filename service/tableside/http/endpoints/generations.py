"""The endpoints of generations: creating, activating and removing complete contents of a table."""

import re
from functools import partial
from typing import Annotated, Any, TypeAlias

from fastapi import Depends, Path, Query
from pydantic import PlainValidator, WithJsonSchema
from starlette.responses import Response

from ...catalog import Generation
from ...core import InvalidOperation, values
from ...core.errors import GenerationNotFound
from ...core.store import Estimate
from ..responses import json_response
from ..wire.answers import JSON, rfc3339
from ..wire.members import IdempotencyKey
from ..wire.request_headers import INTEGER_MAX, parse_integer
from .document import TABLE_ERRORS, errors, json_body, request_body, response
from .models import GenerationEntry, GenerationList, NewGeneration
from .parameters import TableName
from .routing import ServiceRequest, check_read, check_write, new_router

router = new_router("generations")

_CHANGE_ERRORS = (*TABLE_ERRORS, "not_acceptable", "contended", "generation_not_found")

_NUMBER = {"type": "integer", "minimum": 1, "maximum": INTEGER_MAX, "format": "int64", "examples": [8]}

Number: TypeAlias = Annotated[str, WithJsonSchema(_NUMBER), Path(description="The number of a generation.")]
Expected: TypeAlias = Annotated[
    int | None,
    PlainValidator(partial(parse_integer, what="expected", highest=INTEGER_MAX)),
    WithJsonSchema(_NUMBER),
    Query(description="The number of the current generation. If another one is current, the response is 412."),
]


@router.get(
    "/v1/tables/{table}/generations",
    dependencies=[Depends(check_read)],
    responses={200: response("The generations.", model=GenerationList), **errors(*TABLE_ERRORS, "not_acceptable")},
)
async def list_generations(request: ServiceRequest, table: TableName) -> Response:
    """List the complete contents that a table has."""
    request.check_accepts()
    found = await (await request.catalog.generations(table)).listed()
    return json_response({"generations": [_entry(generation, size) for generation, size in found]})


@router.post(
    "/v1/tables/{table}/generations",
    status_code=201,
    dependencies=[Depends(check_write)],
    openapi_extra=request_body({JSON: json_body(NewGeneration, example={"note": "daily job"})}, required=False),
    responses={
        201: response("An empty generation, which loads.", model=GenerationEntry),
        **errors(*_CHANGE_ERRORS, "too_large", "unsupported_media_type"),
    },
)
async def create_generation(request: ServiceRequest, table: TableName, key: IdempotencyKey = None) -> Response:
    """Create an empty content of a table, to load it under its number and then activate it.

    Its records are written and read as those of a table of the name `planes@8`. Readers of `planes` do not see them
    before the activation. If it is not written for `generations_idle_s`, it is removed. A request with the same
    `Idempotency-Key` returns the same generation while it loads.
    """
    request.check_accepts()
    request.media_type((JSON,), default=JSON)
    note = _note(await request.read_body())
    generations = await request.catalog.generations(table, create=True)
    created = await generations.create(note, None if key is None else key.writer)
    request.context.detail = f"generation {created.number}"
    return json_response(_entry(created, Estimate(0, 0)), 201)


@router.post(
    "/v1/tables/{table}/generations/{generation}/activate",
    dependencies=[Depends(check_write)],
    responses={
        200: response("The generation is current in every process.", model=GenerationEntry),
        **errors(*_CHANGE_ERRORS, "precondition_failed"),
    },
)
async def activate_generation(
    request: ServiceRequest, table: TableName, generation: Number, expected: Expected = None
) -> Response:
    """Make a content of a table the one that requests without a number read and write.

    Of the earlier ones the table keeps `generations_kept`, which can be activated again. Older ones that load are
    removed.
    """
    request.check_accepts()
    number = _number(request, generation)
    found = await (await request.catalog.generations(table)).activate(number, expected)
    return json_response(_entry(found, Estimate()))


@router.delete(
    "/v1/tables/{table}/generations/{generation}",
    status_code=204,
    dependencies=[Depends(check_write)],
    responses={204: response("Removed, or absent before."), **errors(*_CHANGE_ERRORS, "precondition_failed")},
)
async def delete_generation(request: ServiceRequest, table: TableName, generation: Number) -> Response:
    """Remove a content of a table that is not the current one."""
    request.check_accepts()
    number = _number(request, generation)
    await (await request.catalog.generations(table)).remove(number)
    return Response(status_code=204)


def _entry(generation: Generation, size: Estimate) -> dict[str, Any]:
    return {
        "generation": generation.number,
        "state": generation.state,
        "created_at": rfc3339(generation.created_ms) if generation.created_ms else None,
        "activated_at": rfc3339(generation.activated_ms) if generation.activated_ms else None,
        "records_estimate": size.records,
        "bytes_estimate": size.size_bytes,
        "note": generation.note,
    }


def _note(body: bytes) -> str | None:
    match values.parse(body) if body.strip() else {}:
        case {"note": str(note), **others} if not others:
            return note
        case {**others} if not others:
            return None
    raise InvalidOperation("the body must be empty, or an object with only the member note, a string")


def _number(request: ServiceRequest, text: str) -> int:
    """Return the number in the path, and note it for the audit log."""
    if not re.fullmatch("[1-9][0-9]{0,17}", text):
        raise GenerationNotFound("the number of a generation in the path is a positive integer")
    request.context.detail = f"generation {text}"
    return int(text)
