"""The endpoints that read a whole table: pages of its records, and splits for parallel readers."""

from collections.abc import Mapping

from starlette.responses import Response
from starlette.routing import Route

from ...core import InvalidOperation, Part, Scan, TableSpec, part_from_text
from ...core.concurrency import in_pieces
from ..responses import arrow_response, encoded_response, json_response
from ..wire import arrow_batch, json_batch, pages, request_headers
from ..wire.cursors import open_sealed, seal
from ..wire.partitions import scan_partitions
from .endpoint import TableRequest, check_read, table_route

JSON, ARROW = json_batch.MEDIA_TYPE, arrow_batch.MEDIA_TYPE

PAGE_RECORDS_DEFAULT = 1000
PAGE_RECORDS_MAX = 10_000
PAGE_BYTES_MAX = 8 * 2**20
SPLITS_DEFAULT = 8
SPLITS_MAX = 1024


def routes() -> list[Route]:
    """Return the routes of pages and splits."""
    return [
        table_route("/v1/tables/{table}/records", check_read, GET=scan_page),
        table_route("/v1/tables/{table}/splits", check_read, GET=list_splits),
    ]


async def scan_page(request: TableRequest) -> Response:
    """Respond with one page of a table's records."""
    table = await request.catalog.table(request.table_name)
    query = request_headers.query_parameters(
        request, ("prefix", "partition", "partitions", "fields", "limit", "cursor", "split")
    )
    media = request_headers.preferred_media_type(request, (JSON, ARROW))
    scope = _seal_scope(table.spec, query.get("prefix"), query.get("partition"), query.get("split"))
    if "partitions" in query:
        scope = (*scope, query["partitions"])
    page = await table.scan(_scan(table.spec, query, scope), request_headers.preferences(request).wait_s)
    cursor = None if page.position is None else seal(page.position, "scan", *scope)
    if (fields := request_headers.fields(query.get("fields"))) is not None:
        page = await in_pieces(pages.project_page(page, fields))
    extra_headers = {"Vary": "Accept"} if cursor is None else {"Vary": "Accept", "Tableside-Cursor": cursor}
    if media == JSON:
        return encoded_response(await in_pieces(pages.encode_json(page, cursor)), JSON, extra_headers)
    return arrow_response(await in_pieces(pages.encode_arrow(page, cursor, table.spec)), extra_headers)


async def list_splits(request: TableRequest) -> Response:
    """Respond with disjoint splits that together cover a table."""
    table = await request.catalog.table(request.table_name)
    count = request_headers.query_parameters(request, ("count",)).get("count", str(SPLITS_DEFAULT))
    request_headers.check_accepts(request, JSON)
    splits = await table.splits(
        request_headers.integer(count, "count", 1, SPLITS_MAX), request_headers.preferences(request).wait_s
    )
    return json_response({"splits": [seal(split, "split", *_seal_scope(table.spec)) for split in splits]})


def _scan(spec: TableSpec, query: Mapping[str, str], scope: tuple[object, ...]) -> Scan:
    partition = query.get("partition")
    if partition is not None and not spec.key.composite:
        raise InvalidOperation("partition requires a table with a composite key")
    cursor, split = query.get("cursor"), query.get("split")
    return Scan(
        request_headers.integer(query.get("limit", str(PAGE_RECORDS_DEFAULT)), "limit", 1, PAGE_RECORDS_MAX),
        query.get("prefix"),
        None if partition is None else _partition(partition, spec),
        None if split is None else open_sealed(split, "split", "split", *_seal_scope(spec)),
        None if cursor is None else open_sealed(cursor, "cursor", "scan", *scope),
        PAGE_BYTES_MAX,
        scan_partitions(spec, query.get("partitions")),
    )


def _seal_scope(spec: TableSpec, *parameters: str | None) -> tuple[str | int | None, ...]:
    """Return the scope of a cursor or split: the table, its number of partitions if it has any, and the parameters."""
    return (spec.name, spec.partitions, *parameters) if spec.partitions else (spec.name, *parameters)


def _partition(text: str, spec: TableSpec) -> Part:
    # Query parameters are already decoded, so a percent sign in them is literal.
    return part_from_text(text.replace("%", "%25").encode(), spec.key.fields[0].type)
