"""The endpoint of batches: many operations in one request, as JSON or as Arrow."""

import time
from collections.abc import Callable, Mapping, Sequence

from starlette.responses import Response
from starlette.routing import Route

from ...auth import refusals_of
from ...catalog import Table, ValueRoom
from ...core import InvalidOperation, MalformedRequest, Outcome, Results, TableNotFound, TableSpec
from ...core.concurrency import in_pieces
from ...core.directions import count_reads
from ..request_context import caller_of
from ..responses import encoded_response
from ..wire import arrow_answers, arrow_batch, arrow_stream, json_batch, request_headers
from ..wire.answers import RECORD_NOT_FOUND, answers, with_errors, with_max_age
from ..wire.body_parts import Encoded
from ..wire.decoded_batch import DecodedBatch
from ..wire.projections import common_projection, project_outcomes
from .endpoint import TableRequest, check_any, deadline_s, table_route

JSON, ARROW = json_batch.MEDIA_TYPE, arrow_batch.MEDIA_TYPE

COPIED_BYTES_MAX = 2**22
"""The maximum size of the values that are copied into a JSON response. Others are sent in parts."""


def route() -> Route:
    """Return the route of batches. A caller needs a permission for each operation, which is checked after decoding."""
    return table_route("/v1/tables/{table}/batch", check_any, POST=apply_batch)


async def apply_batch(request: TableRequest) -> Response:
    """Apply many operations. The response has the media type of the request."""
    media = request_headers.media_type(request, (JSON, ARROW), default=_default_media(request))
    request_headers.check_accepts(request, media)
    request_headers.refuse_tokens(request)
    query = request_headers.query_parameters(request, ("op", "writer", "return", "fields") if media == ARROW else ())
    request.context.reads = True  # A disconnect ends the request until it turns out to contain a write.
    wait_s, max_age_s = request_headers.preferences(request).wait_s, request_headers.max_age_s(request)
    body = await request.read_body()
    table = await request.catalog.table_or_spec(request.table_name)
    spec = table if isinstance(table, TableSpec) else table.spec
    until = request.received_at + deadline_s(table, wait_s)
    decode = _decode_json if media == JSON else _decode_arrow
    batch = await decode(request, body, spec, query, until)
    del body
    outcomes = _outcomes(request, table, batch, wait_s, max_age_s)
    encoded = await _encode(request, await outcomes, media, partitioned=bool(spec.partitions))
    return encoded_response(encoded, media)


async def _outcomes(
    request: TableRequest, table: Table | TableSpec, batch: DecodedBatch, wait_s: float | None, max_age_s: float | None
) -> Sequence[Outcome]:
    """Apply the operations that are valid and permitted. Return an outcome for each operation of the batch."""
    refusals = refusals_of(caller_of(request.scope), request.table_name, batch.operations)
    permitted = [one for at, one in enumerate(batch.operations) if at not in refusals] if refusals else batch.operations
    operations = with_max_age(max_age_s, permitted)
    request.context.operations = batch.count
    request.context.reads = count_reads(operations) == len(operations)
    outcomes: Sequence[Outcome] = []
    if isinstance(table, TableSpec):
        try:
            table = await _created(request)
        except TableNotFound as error:
            if len(operations) == batch.count and operations:
                raise
            outcomes = [error.with_traceback(None)] * len(operations)
    until = request.received_at + deadline_s(table, wait_s)
    if isinstance(table, Table):
        bytes_max = request.limits.response_bytes_max
        room = ValueRoom(bytes_max, None if batch.fields is None else common_projection(batch.fields))
        outcomes = await table.batch(operations, until - time.monotonic(), request.body_bytes, room)
    outcomes = with_errors(with_errors(outcomes, refusals), batch.errors)
    if batch.fields is not None:
        outcomes = await in_pieces(project_outcomes(outcomes, batch.fields, _expired(until)))
    return outcomes


async def _encode(request: TableRequest, outcomes: Sequence[Outcome], media: str, *, partitioned: bool) -> Encoded:
    """Encode the outcomes: in columns, or answer by answer if they have different kinds or large values."""
    bytes_max = request.limits.response_bytes_max
    results = Results.of(outcomes)
    if results is not None and results.value_bytes <= min(bytes_max, COPIED_BYTES_MAX if media == JSON else bytes_max):
        request.context.failed = len(results.failed)
        if media == JSON:
            return await in_pieces(json_batch.encode_results(results))
        return await in_pieces(arrow_answers.encode_results(results, partitioned=partitioned))
    found = await in_pieces(answers(outcomes, bytes_max=bytes_max))
    del outcomes, results
    request.context.failed = sum(one.error is not None and one.error is not RECORD_NOT_FOUND for one in found)
    if media == JSON:
        return await in_pieces(json_batch.encode(found))
    return await in_pieces(arrow_answers.encode(found, partitioned=partitioned))


def _default_media(request: TableRequest) -> str | None:
    """Return the media type of a body without Content-Type: JSON, or None if a page in a browser sent the request.

    A page of any site can make a browser post a body without a type. A JSON or Arrow type requires a CORS preflight.
    If no token is required, this prevents such pages from writing.
    """
    return JSON if request_headers.header(request, "origin") is None else None


async def _decode_json(
    request: TableRequest, body: bytes, spec: TableSpec, query: Mapping[str, str], until: float
) -> DecodedBatch:
    return await in_pieces(json_batch.decode(body, spec, request.limits.operations_max, _expired(until)))


def _expired(until: float) -> Callable[[], bool]:
    return lambda: time.monotonic() >= until


async def _decode_arrow(
    request: TableRequest, body: bytes, spec: TableSpec, query: Mapping[str, str], until: float
) -> DecodedBatch:
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
    return await in_pieces(arrow_batch.decode(rows, spec, settings, _expired(until)))


async def _created(request: TableRequest) -> Table:
    """Create the table. Raise TableNotFound if the batch has no valid write."""
    catalog = request.catalog
    return await (catalog.table if request.context.reads else catalog.table_to_write)(request.table_name)
