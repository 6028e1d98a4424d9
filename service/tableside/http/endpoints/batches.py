"""The endpoint of batches: many operations in one request, as JSON or as Arrow."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from starlette.responses import Response
from starlette.routing import Route

from ...auth import with_refusals
from ...catalog import Table, ValueRoom
from ...core import (
    InvalidOperation,
    MalformedRequest,
    Outcome,
    Record,
    RecordColumns,
    TableNotFound,
    TableSpec,
    Written,
    WrittenColumn,
)
from ...core.concurrency import Pieces, Yielder, in_pieces
from ...core.directions import count_reads
from ..request_context import caller_of
from ..responses import encoded_response
from ..wire import arrow_answers, arrow_batch, arrow_stream, json_batch, request_headers
from ..wire.answers import RECORD_NOT_FOUND, Answer, answers, merge_rejected, valid_operations, with_max_age
from ..wire.body_parts import Encoded
from ..wire.projections import common_projection, project_outcomes
from .endpoint import TableRequest, check_any, deadline_s, table_route

JSON, ARROW = json_batch.MEDIA_TYPE, arrow_batch.MEDIA_TYPE

FREED_OBJECTS_MAX = 250
"""How many objects of a request are freed before other requests have a turn."""

COPIED_BYTES_MAX = 2**22
"""The maximum size of the values that are copied into a JSON response. Others are sent in parts."""


def route() -> Route:
    """Return the route of batches. A caller needs a permission for each operation, which is checked after decoding."""
    return table_route("/v1/tables/{table}/batch", check_any, POST=apply_batch)


async def apply_batch(request: TableRequest) -> Response:
    """Apply many operations. The response has the media type of the request."""
    name = request.table_name
    media = request_headers.media_type(request, (JSON, ARROW), default=_default_media(request))
    request_headers.check_accepts(request, media)
    request_headers.refuse_tokens(request)
    query = request_headers.query_parameters(request, ("op", "writer", "return", "fields") if media == ARROW else ())
    request.context.reads = True  # A disconnect ends the request until it turns out to contain a write.
    wait_s, max_age_s = request_headers.preferences(request).wait_s, request_headers.max_age_s(request)
    body = await request.read_body()
    started_at = request.received_at
    table = await request.catalog.table_or_spec(name)
    spec = table if isinstance(table, TableSpec) else table.spec
    until = started_at + deadline_s(table, wait_s)
    decode = _decode_json if media == JSON else _decode_arrow
    batch = await decode(request, body, spec, query, until)
    yielder = Yielder()
    permitted = with_refusals(caller_of(request.scope), name, batch.operations)
    operations = with_max_age(max_age_s, valid_operations(permitted))
    request.context.operations = len(batch.operations)
    request.context.reads = count_reads(operations) == len(operations)
    outcomes: Sequence[Outcome] = []
    if isinstance(table, TableSpec):
        try:
            table = await _created(request)
            until = started_at + deadline_s(table, wait_s)
        except TableNotFound as error:
            if operations and len(operations) == len(permitted):
                raise
            outcomes = [error.with_traceback(None)] * len(operations)
    await yielder.maybe_yield()
    if isinstance(table, Table):
        bytes_max = request.limits.response_bytes_max
        room = ValueRoom(bytes_max, None if batch.fields is None else common_projection(batch.fields))
        outcomes = await table.batch(operations, until - time.monotonic(), request.body_bytes, room)
    await yielder.maybe_yield()
    if len(operations) != len(permitted):
        outcomes = merge_rejected(permitted, outcomes)
    del permitted, operations  # They may refer to the objects that `_freed` frees.
    if batch.fields is not None:
        outcomes = await in_pieces(project_outcomes(outcomes, batch.fields, _expired(until)))
        await in_pieces(_freed(batch.fields))
    encoded = await _encode(request, outcomes, batch.operations, media, partitioned=bool(spec.partitions))
    return encoded_response(encoded, media)


async def _encode(
    request: TableRequest, outcomes: Sequence[Outcome], operations: Sequence[Any], media: str, *, partitioned: bool
) -> Encoded:
    """Encode the outcomes, and empty both lists. Found records and plain writes are encoded without answers."""
    bytes_max, is_json = request.limits.response_bytes_max, media == JSON
    if isinstance(outcomes, RecordColumns) and not is_json and outcomes.value_bytes <= bytes_max:
        return await in_pieces(arrow_answers.encode_columns(outcomes, partitioned=partitioned))
    if isinstance(outcomes, WrittenColumn) and not is_json:
        return arrow_answers.encode_write_column(outcomes)
    found: list[Answer] = []
    pieces: Pieces[Encoded]
    if records := _all_found(outcomes, min(bytes_max, COPIED_BYTES_MAX) if is_json else bytes_max):
        pieces = (
            json_batch.encode_records(records)
            if is_json
            else arrow_answers.encode_records(records, partitioned=partitioned)
        )
    elif writes := _all_written(outcomes):
        pieces = (json_batch if is_json else arrow_answers).encode_writes(writes)
    else:
        found = await in_pieces(answers(outcomes, bytes_max=bytes_max, operations=operations))
        request.context.failed = sum(one.error is not None and one.error is not RECORD_NOT_FOUND for one in found)
        await in_pieces(_freed(operations, outcomes))
        pieces = json_batch.encode(found) if is_json else arrow_answers.encode(found, partitioned=partitioned)
    encoded = await in_pieces(pieces)
    await in_pieces(_freed(operations, outcomes, found))
    return encoded


def _freed(*lists: Sequence[Any]) -> Pieces[None]:
    """Empty lists of this request. Freeing all their objects at once would take milliseconds."""
    for objects in lists:
        while isinstance(objects, list) and len(objects) > FREED_OBJECTS_MAX:
            del objects[-FREED_OBJECTS_MAX:]
            yield


def _default_media(request: TableRequest) -> str | None:
    """Return the media type of a body without Content-Type: JSON, or None if a page in a browser sent the request.

    A page of any site can make a browser post a body without a type. A JSON or Arrow type requires a CORS preflight.
    If no token is required, this prevents such pages from writing.
    """
    return JSON if request_headers.header(request, "origin") is None else None


async def _decode_json(
    request: TableRequest, body: bytes, spec: TableSpec, query: Mapping[str, str], until: float
) -> json_batch.Batch:
    return await in_pieces(json_batch.decode(body, spec, request.limits.operations_max, _expired(until)), until)


def _expired(until: float) -> Callable[[], bool]:
    return lambda: time.monotonic() >= until


async def _decode_arrow(
    request: TableRequest, body: bytes, spec: TableSpec, query: Mapping[str, str], until: float
) -> json_batch.Batch:
    returning = query.get("return", "false")
    if returning not in ("true", "false"):
        raise MalformedRequest("return must be true or false")
    try:
        fields = request_headers.fields(query.get("fields"))
    except InvalidOperation as error:
        raise MalformedRequest(error.detail) from None
    limits = request.limits
    reading = arrow_stream.read(body, limits.body_bytes_max, limits.operations_max, request.reserve)
    rows = await in_pieces(reading, until)
    settings = arrow_batch.RowSettings(query.get("op"), query.get("writer"), returning == "true", fields)
    return await in_pieces(arrow_batch.decode(rows, spec, settings, _expired(until)), until)


async def _created(request: TableRequest) -> Table:
    """Create the table. Raise TableNotFound if the batch has no valid write."""
    catalog = request.catalog
    return await (catalog.table if request.context.reads else catalog.table_to_write)(request.table_name)


def _all_found(outcomes: Sequence[Outcome], bytes_max: int) -> list[Record]:
    """Return the records if every outcome is one without an expiry and the values fit into `bytes_max`, else none."""
    if set(map(type, outcomes)) != {Record}:
        return []
    records: list[Record] = outcomes  # type: ignore[assignment]  # all types were just checked
    if any(found.expires_ms for found in records) or sum([len(found.value) for found in records]) > bytes_max:
        return []
    return records


def _all_written(outcomes: Sequence[Outcome]) -> list[Written]:
    """Return the writes if every outcome is a write that was applied now and has only an etag, else none."""
    if set(map(type, outcomes)) != {Written}:
        return []
    writes: list[Written] = outcomes  # type: ignore[assignment]  # all types were just checked
    more = [one.etag is None or one.replayed or one.value is not None or one.partitions is not None for one in writes]
    return [] if True in more else writes
