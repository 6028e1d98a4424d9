"""The endpoint of batches: many operations in one request, as JSON or as Arrow."""

from collections.abc import Collection, Sequence
from functools import partial
from typing import Annotated

from fastapi import Depends
from starlette.responses import Response

from ...auth import refusals_of
from ...catalog import Table
from ...core import NO_DEADLINE, MalformedRequest, TableError, TableNotFound, TableSpec, ValueRoom
from ...core.batch import Batch, Results, count_reads
from ...core.budget import in_pieces
from ...core.operations import Delete, Get, Operation, Outcome
from ..responses import encoded_response
from ..wire import arrow_batch, arrow_stream, json_batch
from ..wire.answers import ARROW, JSON, Encoded, bounded, with_errors, with_max_age
from ..wire.members import MEMBERS, OUTCOME_MEMBERS
from ..wire.operation_columns import DecodedBatch
from ..wire.projections import VALUES_MIN, common_fields, project_outcomes, projection
from ..wire.request_headers import Preferences
from . import models
from .document import TABLE_ERRORS, binary, errors, json_body, request_body, response
from .parameters import CacheControl, Prefer, TableName
from .routing import FORGETS, SHORT_BODY_BYTES_MAX, ServiceRequest, check_any, new_router

COPIED_BYTES_MAX = 2**22
"""The maximum size of the values that are copied into a JSON response. Others are sent in parts."""

ARROW_OPERATIONS = binary("An Arrow IPC stream with the columns described above.")
_MEMBERS = "; ".join(
    f"`{one.name}` bool" + (f" if the request has a column `{one.requires}`" if one.requires else "")
    for one in OUTCOME_MEMBERS
)
ARROW_RESULTS = binary(f"""\
An Arrow IPC stream, if the request was one, with one row per operation, in the same order: `status` uint16, `value`
binary (JSON text, or null), `etag` utf8, `code` utf8, `detail` utf8, `retriable` bool, `applied` utf8, {_MEMBERS}; \
`expires_at` utf8 if any record expires. For a partitioned table
two columns follow: `partitions`, a list of structs of `partition` int32 and the columns above, null for a get; and
`dropped` bool.""")

router = new_router("batches")

NO_OPTIONS = arrow_batch.ArrowOptions()

_COLUMNS = "\n".join(f"| `{member.name}` | {member.column} | |" for member in MEMBERS if member.column)
_DESCRIPTION = f"""\
Each operation succeeds or fails on its own: the status of the response is 200 even if some fail, and an error
only if none was attempted. Operations on one key take effect in their order, and a later one sees the earlier.
After one with a retriable or unknown outcome, later ones on the same key are not attempted. A batch is not a
transaction.

As `application/vnd.apache.arrow.stream`, the body is an Arrow IPC stream. Its buffers may be compressed with
lz4 or zstd. One row is one operation. A null is the same as an absent column for that row. Columns:

| column | type | |
|---|---|---|
| `key` | utf8, large_utf8, integer, or a struct of these for a composite key | required |
| `op` | utf8, or a dictionary of it: get, put, update or delete | or the parameter `op`, for all rows |
| `value`, `update`, `default` | utf8 or binary: JSON text | as the members of those names in JSON |
{_COLUMNS}
| `sequence` | integer | with `writer`: the token |
| `writer` | utf8 | or the parameter `writer`, for all rows |
| `partitions` | list or large_list of integers | as in JSON: null and [-1] are all, [null] is the default |"""


@router.post(
    "/v1/tables/{table}/batch",
    dependencies=[Depends(check_any)],  # Each operation needs a permission, which is checked after decoding.
    description=_DESCRIPTION,
    openapi_extra=request_body({JSON: json_body(models.Batch), ARROW: ARROW_OPERATIONS}),
    responses={
        200: response(
            "One result per operation, in the same order.", model=models.Results, content={ARROW: ARROW_RESULTS}
        ),
        **errors(*TABLE_ERRORS, "not_acceptable", "unsupported_media_type", "too_large"),
    },
)
async def apply_batch(
    request: ServiceRequest,
    table: TableName,
    options: Annotated[arrow_batch.ArrowOptions, Depends()],
    max_age_s: CacheControl = None,
    prefer: Prefer = None,
) -> Response:
    """Apply a batch of operations."""
    # A page of any site can make a browser post a body without a type. A JSON or Arrow type requires a CORS preflight.
    # If no token is required, this prevents such pages from writing.
    media = request.media_type((JSON, ARROW), default=JSON if request.header(b"origin") is None else None)
    request.check_accepts(media)
    if refused := request.refused("batch", "all"):  # Ignoring it could apply the batch twice, or undo newer writes.
        article = "an" if refused[1][0] in "aeiou" else "a"
        raise MalformedRequest(f"{refused[0]} does not apply to a batch: give each operation {article} {refused[1]}")
    if media == JSON and options != NO_OPTIONS:
        raise MalformedRequest("the query parameters of a batch are for Arrow only")
    request.context.reads = True  # A disconnect ends the request until it turns out to contain a write.
    body = await request.read_body()
    opened = await request.within(prefer, request.catalog.table_or_spec(table))
    spec = opened if isinstance(opened, TableSpec) else opened.spec
    budget, limits = request.budget(opened, prefer), request.limits
    if media == JSON:
        decoding = json_batch.decode(body, spec, limits.operations_max, budget)
    else:
        reading = arrow_stream.read(body, limits.body_bytes_max, limits.operations_max, request.reserve)
        # The answer to a short stream has an outcome for each operation, also if the deadline is over.
        until_read = budget if len(body) > SHORT_BODY_BYTES_MAX else NO_DEADLINE
        decoding = arrow_batch.decode(*await in_pieces(reading, until_read), spec, options, budget)
    del body
    batch = await in_pieces(decoding)
    outcomes = _outcomes(request, opened, batch, prefer, max_age_s)
    encoded = await _encode(request, await outcomes, media, batch.columns, partitioned=bool(spec.partitions))
    return encoded_response(encoded, media)


async def _outcomes(
    request: ServiceRequest,
    table: Table | TableSpec,
    batch: DecodedBatch,
    prefer: Preferences | None,
    max_age_s: float | None,
) -> Sequence[Outcome]:
    """Apply the operations that are valid and permitted. Return an outcome for each operation of the batch."""
    refusals: dict[int, TableError] = {**refusals_of(request.caller, request.table_name, batch.operations)}
    request.context.denied = len(refusals)
    writes = count_reads(batch.operations) < len(batch.operations)
    if writes and isinstance(table, Table) and (sealed := request.catalog.sealed(request.table_name)) is not None:
        refusals |= {at: sealed for at, one in enumerate(batch.operations) if not isinstance(one, Get)}
    permitted = [one for at, one in enumerate(batch.operations) if at not in refusals] if refusals else batch.operations
    operations = with_max_age(max_age_s, permitted)
    request.context.operations = batch.count
    request.context.reads = count_reads(operations) == len(operations)
    if _forgets(operations):
        request.context.detail = FORGETS
    outcomes: Sequence[Outcome] = []
    if isinstance(table, TableSpec):
        try:
            found = request.catalog.table(request.table_name) if request.context.reads else request.created_table()
            table = await found
        except TableNotFound as error:
            if len(operations) == batch.count and operations:
                raise
            outcomes = [error.with_traceback(None)] * len(operations)
    common = common_fields(batch.fields or ())
    reduction = None if common is None else partial(projection, common, VALUES_MIN)
    budget = request.budget(table, prefer, ValueRoom(request.limits.response_bytes_max, reduction))
    if isinstance(table, Table):
        outcomes = await table.batch(operations, budget)
    outcomes = with_errors(with_errors(outcomes, refusals), batch.errors)
    if batch.fields is not None:
        outcomes = await in_pieces(project_outcomes(outcomes, batch.fields, budget))
    return outcomes


def _forgets(operations: Sequence[Operation]) -> bool:
    if isinstance(operations, Batch):
        return operations.has("forget")
    return any(isinstance(one, Delete) and one.forget for one in operations)


async def _encode(
    request: ServiceRequest, outcomes: Sequence[Outcome], media: str, columns: Collection[str], *, partitioned: bool
) -> Encoded:
    """Encode the outcomes: in columns, unless they have different kinds or large values."""
    bytes_max = request.limits.response_bytes_max
    results = Results.of(outcomes)
    if results is not None and results.value_bytes <= min(bytes_max, COPIED_BYTES_MAX if media == JSON else bytes_max):
        outcomes = results
        request.context.count_failed(results.failed.values())
    else:
        outcomes = await in_pieces(bounded(outcomes, bytes_max))
        request.context.count_failed(one for one in outcomes if isinstance(one, TableError))
    if media == JSON:
        encoding = json_batch.encode(outcomes)
    else:
        flags = [member.name for member in OUTCOME_MEMBERS if not member.requires or member.requires in columns]
        encoding = arrow_batch.encode(outcomes, flags, partitioned=partitioned)
    del outcomes, results
    return await in_pieces(encoding)
