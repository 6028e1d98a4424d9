"""The endpoints of many records of a table: reading or deleting them in pages, and splits for parallel readers."""

from copy import copy
from functools import partial
from typing import Annotated, TypeAlias

from fastapi import Depends, Query
from pydantic import PlainValidator
from starlette.responses import Response

from ...core import Delete, InvalidOperation, MalformedRequest, Part, Scan, TableError, TableSpec, part_from_text
from ...core.budget import in_pieces
from ..responses import encoded_response, json_response
from ..wire import pages
from ..wire.answers import ARROW, JSON
from ..wire.operation_members import scan_partitions
from ..wire.pages import generation_of, open_sealed, seal
from ..wire.request_headers import parse_integer, preferred_media_type
from .document import TABLE_ERRORS, binary, errors, link, response
from .models import DeletedPage, Page, Splits
from .parameters import FieldsQuery, Prefer, TableName, count, text
from .routing import ServiceRequest, check_read, check_write, new_router

PAGE_RECORDS_DEFAULT = 1000
PAGE_RECORDS_MAX = 10_000
PAGE_BYTES_MAX = 8 * 2**20
SPLITS_DEFAULT = 8
SPLITS_MAX = 1024

router = new_router("scans")

Text: TypeAlias = Annotated[str | None, text()]
PartitionQuery: TypeAlias = Annotated[
    str | None, text(minLength=1), Query(description="For a composite key: only records with this first part.")
]
Limit: TypeAlias = Annotated[
    int,
    PlainValidator(partial(parse_integer, what="limit", highest=PAGE_RECORDS_MAX)),
    count(PAGE_RECORDS_DEFAULT),
    Query(description=f"Maximum number of records in a page. Above {PAGE_RECORDS_MAX:,} it is {PAGE_RECORDS_MAX:,}."),
]

_NEXT = {"table": "$request.path.table", "cursor": "$response.body#/cursor"}
_FIRST_SPLIT = {"table": "$request.path.table", "split": "$response.body#/splits/0"}


@router.get(
    "/v1/tables/{table}/records",
    dependencies=[Depends(check_read)],
    responses={
        200: response(
            "A page. In Arrow it has the columns `key`, `value` and `etag`, then `expires_at` if any record expires, "
            "and for a partitioned table `partition` int32. The cursor is in the schema's metadata and in a header.",
            *("Tableside-Cursor", "Vary"),
            model=Page,
            content={ARROW: binary("An Arrow IPC stream.")},
            links={"next": link("scan_records", "The next page.", _NEXT)},
        ),
        **errors(*TABLE_ERRORS, "not_acceptable", "record_unreadable"),
    },
)
async def scan_records(
    request: ServiceRequest,
    table: TableName,
    prefix: Annotated[
        Text, Query(description="Prefix of the first part of the key; with `partition`, of the second part.")
    ] = None,
    partition: PartitionQuery = None,
    limit: Limit = PAGE_RECORDS_DEFAULT,
    cursor: Annotated[
        Text, Query(description="The cursor of the previous page. `prefix`, `partition` and `split` must be the same.")
    ] = None,
    split: Annotated[Text, Query(description="One of the table's splits: only the records in it.")] = None,
    partitions: Annotated[
        str | None,
        text(pattern="^(all|[0-9]{1,3}(,[0-9]{1,3})*)$"),
        Query(description="For a partitioned table: the comma-separated indexes of the partitions to read, or `all`."),
    ] = None,
    fields: FieldsQuery = None,
    prefer: Prefer = None,
) -> Response:
    """Scan records, page by page.

    A record that exists during the whole scan is returned at least once, possibly twice. A page may be short or empty:
    the scan ends only if the cursor is null.
    """
    opened = await request.within(prefer, request.catalog.table(table, generation_of(cursor or split)))
    media, spec = preferred_media_type(request.header(b"accept"), (JSON, ARROW)), opened.spec
    scope = _seal_scope(spec, prefix, partition, split)
    if partitions is not None:
        scope = (*scope, partitions)
    scan = Scan(
        limit,
        prefix,
        _partition(partition, spec),
        None if split is None else open_sealed(split, "split", "split", *_seal_scope(spec)),
        None if cursor is None else open_sealed(cursor, "cursor", "scan", *scope),
        PAGE_BYTES_MAX,
        scan_partitions(spec, partitions),
    )
    page = await opened.scan(scan, request.budget(opened, prefer))
    following = None if page.position is None else seal(page.position, spec.generation, "scan", *scope)
    if fields is not None:
        page = await in_pieces(pages.project_page(page, fields))
    extra_headers = {"Vary": "Accept"} if following is None else {"Vary": "Accept", "Tableside-Cursor": following}
    encode = pages.encode_json(page, following) if media == JSON else pages.encode_arrow(page, following, spec)
    return encoded_response(await in_pieces(encode), media, extra_headers)


@router.delete(
    "/v1/tables/{table}/records",
    dependencies=[Depends(check_write)],
    responses={
        200: response(
            "The number of deleted records, and the cursor of the next page.",
            model=DeletedPage,
            links={"next": link("delete_records", "The next page.", _NEXT)},
        ),
        **errors(*TABLE_ERRORS, "not_acceptable", "contended", "record_unreadable"),
    },
)
async def delete_records(
    request: ServiceRequest,
    table: TableName,
    prefix: Annotated[str | None, text(minLength=1), Query(description="Prefix of the first part of the key.")] = None,
    partition: PartitionQuery = None,
    everything: Annotated[
        str | None, text(enum=["true"]), Query(alias="all", description="`true`: all records of the table.")
    ] = None,
    limit: Limit = PAGE_RECORDS_DEFAULT,
    cursor: Annotated[
        Text, Query(description="The cursor of the previous page. `prefix`, `partition` or `all` must be the same.")
    ] = None,
    prefer: Prefer = None,
) -> Response:
    """Delete the records that a scan would return, with their tokens and orders, page by page.

    Exactly one of `prefix`, `partition` and `all` chooses the records. The records of all partitions of a partitioned
    table are deleted. Records that are written meanwhile may stay or go. Others may remain until the cursor is null.
    """
    request.check_accepts()
    if [prefix, partition, everything].count(None) != 2 or prefix == "" or everything not in (None, "true"):
        raise MalformedRequest("a request needs exactly one of prefix, which must not be empty, partition and all=true")
    if refused := request.refused("all"):  # Ignoring it would delete newer records.
        raise MalformedRequest(f"{refused[0]} does not apply to the deletion of many records")
    opened = await request.within(prefer, request.catalog.table(table, generation_of(cursor)))
    if (sealed := request.catalog.sealed(table)) is not None:
        raise sealed
    spec, budget = opened.spec, request.budget(opened, prefer)
    scope = (*_seal_scope(spec, prefix, partition, everything), "delete")
    position = None if cursor is None else open_sealed(cursor, "cursor", "scan", *scope)
    partitions = tuple(range(spec.partitions)) if spec.partitions else None
    scan = Scan(limit, prefix, _partition(partition, spec), None, position, PAGE_BYTES_MAX, partitions)
    page = await opened.scan(scan, budget)
    places = [None] * len(page.records) if page.partitions is None else [(index,) for index in page.partitions]
    deletes = [Delete(key, forget=True, partitions=place) for (key, _), place in zip(page.records, places, strict=True)]
    request.context.operations = len(deletes)
    for outcome in await opened.batch(deletes, budget):
        if isinstance(outcome, TableError):
            failed = copy(outcome)
            failed.applied, failed.partitions = "unknown", None  # Other records may have been deleted.
            raise failed
    following = None if page.position is None else seal(page.position, spec.generation, "scan", *scope)
    return json_response({"deleted": len(deletes), "cursor": following})


@router.get(
    "/v1/tables/{table}/splits",
    dependencies=[Depends(check_read)],
    responses={
        200: response(
            "The splits, for the parameter `split` of scans.",
            model=Splits,
            links={"read": link("scan_records", "Read the first split.", _FIRST_SPLIT)},
        ),
        **errors(*TABLE_ERRORS, "not_acceptable"),
    },
)
async def list_splits(
    request: ServiceRequest,
    table: TableName,
    number: Annotated[
        int,
        PlainValidator(partial(parse_integer, what="count", highest=SPLITS_MAX)),
        count(SPLITS_DEFAULT),
        Query(alias="count", description="Maximum number of splits."),
    ] = SPLITS_DEFAULT,
    prefer: Prefer = None,
) -> Response:
    """Split a table for parallel readers.

    The splits are disjoint and together cover the table.
    """
    request.check_accepts()
    opened = await request.within(prefer, request.catalog.table(table))
    splits = await opened.splits(number, request.budget(opened, prefer))
    spec = opened.spec
    return json_response({"splits": [seal(split, spec.generation, "split", *_seal_scope(spec)) for split in splits]})


def _seal_scope(spec: TableSpec, *parameters: str | None) -> tuple[str | int | None, ...]:
    """Return the scope of a cursor or split: the table, its number of partitions if it has any, and the parameters."""
    return (spec.name, spec.partitions, *parameters) if spec.partitions else (spec.name, *parameters)


def _partition(value: str | None, spec: TableSpec) -> Part | None:
    if value is None:
        return None
    if not spec.key.composite:
        raise InvalidOperation("partition requires a table with a composite key")
    # Query parameters are already decoded, so a percent sign in them is literal.
    return part_from_text(value.replace("%", "%25").encode(), spec.key.fields[0].type)
