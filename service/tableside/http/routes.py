"""One short function per endpoint: decode, one table verb, encode.

They take the bare request and are plain Starlette routes: resolving declared parameters costs more than a whole
operation does. What they accept and answer is described in `openapi`.
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias
from urllib.parse import unquote

import orjson
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from ..auth import UNRESTRICTED, Caller, Unauthenticated, permitted
from ..catalog import Catalog, Table
from ..core import (
    Get,
    InvalidOperation,
    MalformedRequest,
    Operation,
    Outcome,
    Record,
    Scan,
    StoreUnavailable,
    TableError,
    TableNotFound,
    TableSpec,
    TooLarge,
    part_from_text,
    values,
)
from ..core.errors import Overloaded
from ..settings import NAME
from . import server_scope
from .request_context import caller_of, notes
from .wire import arrow_answers, arrow_batch, headers, json_batch, pages, problems
from .wire import operation_members as members
from .wire.answers import ABSENT, Answer, answer, answers, limited_to, rfc3339, valid, with_refused
from .wire.cursors import open_sealed, seal
from .wire.partitions import choice, from_query, of_scan, places
from .wire.problems import NotFound
from .wire.table_description import describe

JSON, ARROW, MERGE_PATCH = json_batch.MEDIA_TYPE, arrow_batch.MEDIA_TYPE, "application/merge-patch+json"

PAGE_RECORDS_DEFAULT = 1000
PAGE_RECORDS_MAX = 10_000
PAGE_BYTES_MAX = 8 * 2**20
SPLITS_DEFAULT = 8
SPLITS_MAX = 1024

_NAME = re.compile(NAME)
_RAW_PATH = re.compile(rb"/v1/tables/([^/]+)(?:/(?:records|batch|splits)(?:/(.*))?)?", re.DOTALL)


def routes() -> list[Route]:
    """Return every route of the service."""
    return [
        _record_route(),
        _route("/v1/tables/{table}/batch", batch, _some_right, "POST"),
        _route("/v1/tables/{table}/records", scan, _read_right),
        _route("/v1/tables/{table}/splits", splits, _read_right),
        _route("/v1/tables/{table}", table, _some_right),
        _route("/v1/tables", tables, None),
        _route("/livez", livez, None),
        _route("/readyz", readyz, None),
        _route("/metrics", metrics, None),
    ]


_Check: TypeAlias = Callable[[Request, Caller], None]


class _Endpoint:
    """A function from request to response as an ASGI application; errors are for the edge to answer.

    What the caller may do is checked first, before the body is read and anything is looked up.
    """

    def __init__(self, handler: Callable[[Request], Awaitable[Response]], check: _Check | None) -> None:
        self._handler = handler
        self._check = check

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request, caller = Request(scope, receive), caller_of(scope)
        if caller is not UNRESTRICTED and self._check is not None:
            self._check(request, caller)
        response = await self._handler(request)
        await response(scope, receive, send)


def _route(path: str, handler: Callable[[Request], Awaitable[Response]], check: _Check | None, *methods: str) -> Route:
    return Route(path, _Endpoint(handler, check), methods=methods or ["GET"], name=handler.__name__)


def _record_route() -> Route:
    route = _route("/v1/tables/{table}/records/{key:path}", record, _record_right, *_RECORD)
    # As the framework compiles it, the dot stops at a newline, which a key may hold.
    route.path_regex = re.compile(route.path_regex.pattern, re.DOTALL)
    return route


def _some_right(request: Request, caller: Caller) -> None:
    caller.check_some(_path(request)[0])


def _read_right(request: Request, caller: Caller) -> None:
    caller.check("read", _path(request)[0])


def _record_right(request: Request, caller: Caller) -> None:
    name, _ = _path(request)
    writes = request.method not in ("GET", "HEAD")
    if writes:
        caller.check("write", name)
    if not writes or (request.method != "DELETE" and headers.preferences(request).representation):
        caller.check("read", name)


# Single records


async def record(request: Request) -> Response:
    """Get, put, update or delete one record."""
    notes(request.scope).operations = 1
    return await _RECORD[request.method](request)


async def get_record(request: Request) -> Response:
    """Answer one record."""
    name, segments = _path(request)
    found_table = await _catalog(request).table(name)
    query = headers.query(request, ("fields", "partitions"))
    headers.check_accepts(request, JSON)
    spec = found_table.spec
    operation = Get(spec.key.from_path(segments), headers.max_age_s(request))
    if "partitions" in query:
        operation = Get(operation.key, operation.max_age_s, choice(spec, from_query(query["partitions"])))
    outcome = await found_table.one(operation, headers.preferences(request).wait_s)
    found = answer(outcome, headers.fields(query.get("fields")))
    if found.etag is not None and headers.none_match(request, found.etag):
        found = Answer(304, None, found.etag, found.expires_ms)
    response = _single(found, places(spec, operation) if spec.partitions else ())
    if isinstance(outcome, Record) and outcome.age_s is not None:
        response.raw_headers.append((b"age", b"%d" % outcome.age_s))
    return response


async def put_record(request: Request) -> Response:
    """Make one record's value the body."""
    headers.media_type(request, (JSON,), default=JSON)
    value = values.parse(await _body(request))
    return await _write(request, {"op": "put", "value": value, "if_absent": headers.if_absent(request)})


async def patch_record(request: Request) -> Response:
    """Change one record by a merge patch, or by an update with a default."""
    try:
        media = headers.media_type(request, (JSON, MERGE_PATCH))
    except TableError as error:
        return problem_response(error, {"Accept-Patch": f"{JSON}, {MERGE_PATCH}"})
    document = values.parse(await _body(request))
    if headers.if_absent(request):
        raise InvalidOperation("If-None-Match has no meaning for an update")
    if media == JSON:
        return await _write(request, {"op": "update", **_envelope(document)})
    if not isinstance(document, dict):
        raise InvalidOperation("a merge patch is an object")
    if any(name.startswith("$") for name in document):
        raise InvalidOperation("a merge patch has no operators: send them as application/json")
    return await _write(request, {"op": "update", "update": document})


async def delete_record(request: Request) -> Response:
    """Make one record absent."""
    if headers.if_absent(request):
        raise InvalidOperation("If-None-Match has no meaning for a delete")
    return await _write(request, {"op": "delete"})


_RECORD = {
    "GET": get_record,
    "HEAD": get_record,
    "PUT": put_record,
    "PATCH": patch_record,
    "DELETE": delete_record,
}


async def _write(request: Request, given: dict[str, Any]) -> Response:
    name, segments = _path(request)
    spec = await _catalog(request).spec(name)
    preferences = headers.preferences(request)
    operation = members.build(
        spec, given["op"], spec.key.from_path(segments), _with_headers(request, given, preferences)
    )
    went_to = places(spec, operation) if spec.partitions else ()
    if given.get("return") and len(went_to) > 1:
        raise InvalidOperation("a value cannot be returned from several partitions: ask for it in a batch")
    found = await _catalog(request).table_to_write(name)
    outcome = await found.one(operation, preferences.wait_s)
    response = _single(answer(outcome), went_to)
    if preferences.representation and response.status_code in (200, 201):
        response.headers["Preference-Applied"] = "return=representation"
    return response


def _with_headers(request: Request, given: dict[str, Any], preferences: headers.Preferences) -> dict[str, Any]:
    """Add what headers and query say to the members of a write."""
    given["if_match"] = headers.if_match(request)
    given["token"] = headers.token(request)
    query = headers.query(request, ("partitions",) if given["op"] == "delete" else ("partitions", "ttl_s"))
    if "partitions" in query:
        given["partitions"] = from_query(query["partitions"])
    if given["op"] == "delete":
        return given
    if (ttl_s := headers.ttl_s(query.get("ttl_s"))) is not None:
        given["ttl_s"] = ttl_s
    given["return"] = preferences.representation
    if preferences.representation:
        headers.check_accepts(request, JSON)
    return given


def _envelope(document: values.Json) -> dict[str, Any]:
    if not isinstance(document, dict) or not document.keys() <= {"update", "default", "ttl_s"}:
        raise InvalidOperation("the body is an object with update, and if wanted default and ttl_s")
    return document


def _single(found: Answer, went_to: Sequence[int]) -> Response:
    """Answer one operation; of a partitioned table, also which partitions it went to."""
    if found.error is None:
        response: Response = _RecordResponse(found)
    elif found.partitions is None:
        response = problem_response(found.error)
    else:
        each = orjson.Fragment(json_batch.encoded_parts(found.partitions))
        response = problem_response(found.error, members={"partitions": each})
    if went_to:
        response.raw_headers.append((b"tableside-partitions", ",".join(map(str, went_to)).encode()))
    return response


class _RecordResponse(Response):
    """The answer about one record, its headers written as they are sent: the framework's way takes twice the time."""

    def __init__(self, found: Answer) -> None:
        self.status_code = found.status
        self.background = None
        self.body = b"" if found.value is None else found.value
        self.raw_headers = []
        if found.value is not None:
            self.raw_headers += [(b"content-length", b"%d" % len(found.value)), (b"content-type", JSON.encode())]
        if found.etag is not None:
            self.raw_headers.append((b"etag", b'"%b"' % found.etag.encode()))
        if found.expires_ms:
            self.raw_headers.append((b"tableside-expires-at", rfc3339(found.expires_ms).encode()))
        if found.replayed:
            self.raw_headers.append((b"tableside-replayed", b"true"))
        if found.dropped:
            self.raw_headers.append((b"tableside-dropped", b"true"))


# Batches


async def batch(request: Request) -> Response:
    """Do many operations; the answer is in the request's media type."""
    name, _ = _path(request)
    spec = await _catalog(request).spec(name)
    media = headers.media_type(request, (JSON, ARROW), default=_default_media(request))
    headers.check_accepts(request, media)
    query = headers.query(request, ("op", "writer", "return", "fields") if media == ARROW else ())
    wait_s, max_age_s = headers.preferences(request).wait_s, headers.max_age_s(request)
    body = await _body(request)
    asked = json_batch.decode(body, spec, _limits(request).operations_max) if media == JSON else None
    asked = asked or _arrow_batch(request, body, spec, query)
    given = permitted(caller_of(request.scope), name, asked.operations)
    operations = limited_to(max_age_s, valid(given))
    noted = notes(request.scope)
    noted.operations = len(asked.operations)
    outcomes: Sequence[Outcome] = await (await _table_for(request, name, operations)).batch(operations, wait_s)
    if len(operations) != len(given):
        outcomes = with_refused(given, outcomes)
    bytes_max = _limits(request).response_bytes_max
    partitioned = bool(spec.partitions)
    if media == ARROW and asked.fields is None and (records := _all_found(outcomes, bytes_max)):
        return Response(arrow_answers.encode_records(records, partitioned=partitioned), media_type=ARROW)
    found = answers(outcomes, asked.fields, bytes_max=bytes_max, operations=asked.operations)
    noted.failed = sum(one.error is not None and one.error is not ABSENT for one in found)
    encoded = json_batch.encode(found) if media == JSON else arrow_answers.encode(found, partitioned=partitioned)
    return Response(encoded, media_type=media)


def _default_media(request: Request) -> str | None:
    """Return what a batch is in that does not say so; nothing where a page in a browser sends it.

    A page of any site can make a browser post a body without a type, and one with a type only if it is let: where no
    token is needed, that is what keeps it from writing.
    """
    return JSON if headers.header(request, "origin") is None else None


def _arrow_batch(request: Request, body: bytes, spec: TableSpec, query: Any) -> json_batch.Batch:
    returning = query.get("return", "false")
    if returning not in ("true", "false"):
        raise MalformedRequest("return is true or false")
    try:
        fields = headers.fields(query.get("fields"))
    except InvalidOperation as error:
        raise MalformedRequest(error.detail) from None
    return arrow_batch.decode(
        arrow_batch.read(body, _limits(request).body_bytes_max),
        spec,
        _limits(request).operations_max,
        op=query.get("op"),
        writer=query.get("writer"),
        returning=returning == "true",
        fields=fields,
    )


async def _table_for(request: Request, name: str, operations: Sequence[Operation]) -> Table:
    writes = set(map(type, operations)) - {Get}
    notes(request.scope).reads = not writes
    return await (_catalog(request).table_to_write(name) if writes else _catalog(request).table(name))


def _all_found(outcomes: Sequence[Outcome], bytes_max: int) -> list[Record]:
    """Return the records if every outcome is one, with nothing beside its value; else none."""
    if set(map(type, outcomes)) != {Record}:
        return []
    records: list[Record] = outcomes  # type: ignore[assignment]  # just seen
    if any(found.expires_ms for found in records) or sum(len(found.value) for found in records) > bytes_max:
        return []
    return records


# Scans


async def scan(request: Request) -> Response:
    """Answer one page of a table's records."""
    name, _ = _path(request)
    found = await _catalog(request).table(name)
    query = headers.query(request, ("prefix", "partition", "partitions", "fields", "limit", "cursor", "split"))
    media = headers.preferred(request, (JSON, ARROW))
    scope = _scanned(found.spec, query.get("prefix"), query.get("partition"), query.get("split"))
    if "partitions" in query:
        scope = (*scope, query["partitions"])
    page = await found.scan(_scan(found.spec, query, scope), headers.preferences(request).wait_s)
    cursor = None if page.position is None else seal(page.position, "scan", *scope)
    fields = headers.fields(query.get("fields"))
    given = {"Vary": "Accept"} if cursor is None else {"Vary": "Accept", "Tableside-Cursor": cursor}
    if media == JSON:
        return Response(pages.encode_json(page, cursor, fields), headers=given, media_type=JSON)
    return Response(pages.encode_arrow(page, cursor, found.spec, fields), headers=given, media_type=ARROW)


def _scan(spec: TableSpec, query: Any, scope: tuple[object, ...]) -> Scan:
    partition = query.get("partition")
    if partition is not None and not spec.key.composite:
        raise InvalidOperation("partition needs a table with a composite key")
    cursor, split = query.get("cursor"), query.get("split")
    return Scan(
        headers.integer(query.get("limit", str(PAGE_RECORDS_DEFAULT)), "limit", 1, PAGE_RECORDS_MAX),
        query.get("prefix"),
        None if partition is None else _partition(partition, spec),
        None if split is None else open_sealed(split, "split", "split", *_scanned(spec)),
        None if cursor is None else open_sealed(cursor, "cursor", "scan", *scope),
        PAGE_BYTES_MAX,
        of_scan(spec, query.get("partitions")),
    )


def _scanned(spec: TableSpec, *asked: str | None) -> tuple[str | int | None, ...]:
    """Return what a cursor or a split is good for: the table, with as many partitions as it has, and what was asked."""
    return (spec.name, spec.partitions, *asked) if spec.partitions else (spec.name, *asked)


def _partition(text: str, spec: TableSpec) -> Any:
    # Query parameters are decoded already: a percent sign stands for itself.
    return part_from_text(text.replace("%", "%25").encode(), spec.key.fields[0].type)


async def splits(request: Request) -> Response:
    """Answer disjoint parts that together cover a table."""
    name, _ = _path(request)
    found = await _catalog(request).table(name)
    count = headers.query(request, ("count",)).get("count", str(SPLITS_DEFAULT))
    headers.check_accepts(request, JSON)
    parts = await found.splits(headers.integer(count, "count", 1, SPLITS_MAX), headers.preferences(request).wait_s)
    return _json({"splits": [seal(part, "split", *_scanned(found.spec)) for part in parts]})


# Tables, and the service itself


async def tables(request: Request) -> Response:
    """Describe every table on which the caller has some right."""
    headers.query(request, ())
    headers.check_accepts(request, JSON)
    limits, may_some = _limits(request), caller_of(request.scope).may_some
    seen = [entry for entry in _catalog(request).entries() if may_some(entry.spec.name)]
    return _json({"tables": [describe(entry, limits) for entry in seen]})


async def table(request: Request) -> Response:
    """Describe one table."""
    headers.query(request, ())
    headers.check_accepts(request, JSON)
    name, _ = _path(request)
    entry = _catalog(request).entry(name)
    await entry.opened()
    return _json(describe(entry, _limits(request)))


async def livez(request: Request) -> Response:
    """Answer that the process runs; no store is asked."""
    return _json({"status": "alive"})


async def readyz(request: Request) -> Response:
    """Answer whether operations can be served, and which stores can be reached."""
    reached = await _catalog(request).ping()
    stores = {name: {"ready": error is None, "detail": error and error.detail} for name, error in reached.items()}
    if server_scope.is_draining(request.scope):
        return problem_response(Overloaded("draining: the service is about to stop"), members={"stores": stores})
    if any(error is None for error in reached.values()):
        return _json({"status": "ready", "stores": stores})
    error = StoreUnavailable("no store can be reached", retry_after_s=2)
    return problem_response(error, members={"stores": stores})


async def metrics(request: Request) -> Response:
    """Answer the metrics in Prometheus' text format."""
    return Response(await request.app.state.exposition.written(), headers={"Content-Type": CONTENT_TYPE_LATEST})


def problem_response(
    error: TableError, given: dict[str, str] | None = None, members: dict[str, Any] | None = None
) -> Response:
    """Answer an error."""
    given = dict(given or {})
    if error.retry_after_s is not None:
        given["Retry-After"] = str(max(1, round(error.retry_after_s)))
    if isinstance(error, Unauthenticated):
        given["WWW-Authenticate"] = error.challenge
    content = orjson.dumps({**problems.problem(error), **(members or {})})
    return _Problem(error.code, content, problems.status(error), given, media_type=problems.MEDIA_TYPE)


class _Problem(Response):
    """An answer that notes its error's code."""

    def __init__(self, code: str, content: bytes, status: int, given: dict[str, str], media_type: str) -> None:
        super().__init__(content, status, given, media_type=media_type)
        self._code = code

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        notes(scope).code = self._code
        await super().__call__(scope, receive, send)


# What several of them need


def _catalog(request: Request) -> Catalog:
    catalog: Catalog = request.app.state.catalog
    return catalog


def _limits(request: Request) -> Any:
    return request.app.state.settings.limits


def _path(request: Request) -> tuple[str, list[bytes]]:
    """Return the table's name and the key's segments, still percent-encoded.

    The decoded path that the server gives cannot tell `a%2Fb`, one part, from `a/b`, two.
    """
    raw: bytes = request.scope.get("raw_path") or request.scope["path"].encode()
    match = _RAW_PATH.fullmatch(raw)
    if match is None:  # An encoded slash stands where a path has a plain one.
        raise NotFound("no such path")
    name = match[1].decode("latin-1")
    if "%" in name:
        name = unquote(name)
    if not _NAME.fullmatch(name):
        raise TableNotFound("no table has that name")
    notes(request.scope).table = name
    return name, [] if match[2] is None else match[2].split(b"/")


async def _body(request: Request) -> bytes:
    bytes_max = _limits(request).body_bytes_max
    declared = headers.header(request, "content-length")
    if declared is not None and int(declared) > bytes_max:
        raise TooLarge(f"a body may have {bytes_max} bytes")
    chunks, size_bytes = [], 0
    async for chunk in request.stream():
        size_bytes += len(chunk)
        if size_bytes > bytes_max:
            raise TooLarge(f"a body may have {bytes_max} bytes")
        chunks.append(chunk)
    return b"".join(chunks)


def _json(document: object) -> Response:
    return Response(orjson.dumps(document), media_type=JSON)
