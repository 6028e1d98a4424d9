"""Where the pages are: each decodes what was asked, has one of the modules beside it answer, and writes the page."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from ... import __version__
from ...catalog import Catalog, CatalogEntry
from ...core import InvalidOperation, Key, MalformedRequest, TableError
from ..request_context import context_of
from ..responses import problem_response
from ..wire import problems
from ..wire.problems import NotFound
from . import forms, guard, one_table, overview, records
from .access import allowed
from .console import Console
from .records import View
from .rendering import Rendering
from .sentences import trouble

Handler = Callable[[Request], Awaitable[Response]]


def routes(console: Console) -> list[Route]:
    """Return the routes of the console."""
    pages = _Pages(console, Rendering())
    return [
        _route(pages, "/console", pages.overview),
        _route(pages, "/console/", pages.overview),
        _route(pages, "/console/live", pages.overview_live),
        _route(pages, "/console/static/{file}", pages.file),
        _route(pages, "/console/tables/{table}", pages.table),
        _route(pages, "/console/tables/{table}/live", pages.table_live),
        _route(pages, "/console/tables/{table}/records", pages.scan),
        _route(pages, "/console/tables/{table}/record", pages.look_up),
        _route(pages, "/console/tables/{table}/record", pages.put, "PUT"),
        _route(pages, "/console/tables/{table}/record", pages.delete, "DELETE"),
    ]


class _Pages:
    """The endpoints."""

    def __init__(self, console: Console, rendering: Rendering) -> None:
        self._console = console
        self._rendering = rendering

    async def overview(self, request: Request) -> Response:
        """Every table."""
        return await self._overview(request, "overview.html")

    async def overview_live(self, request: Request) -> Response:
        """What changes of it."""
        return await self._overview(request, "overview_live.html")

    async def file(self, request: Request) -> Response:
        """A file that pages need."""
        if (found := self._rendering.files.get(request.path_params["file"])) is None:
            raise NotFound("no such file")
        return found.response()

    async def table(self, request: Request) -> Response:
        """One table."""
        return await self._table(request, _entry(request))

    async def table_live(self, request: Request) -> Response:
        """What changes of it."""
        entry = _entry(request)
        self._console.looked()
        shown = await one_table.live(self._console, request, entry)
        return self._page(request, "table_live.html", {"entry": entry, **shown})

    async def scan(self, request: Request) -> Response:
        """A page of its records."""
        entry = _entry(request)
        page = await records.scan(_catalog(request), entry, request.query_params)
        return await self._table(request, entry, scan=page, part="scan.html")

    async def look_up(self, request: Request) -> Response:
        """One record."""
        entry = _entry(request)
        view = await _at_key(entry, request, lambda key: _looked_up(request, entry, key))
        return await self._table(request, entry, view=view, part="record.html")

    async def put(self, request: Request) -> Response:
        """Replace or make one record."""
        entry = _entry_to_change(request)
        given = await forms.form(request)
        view = await _at_key(entry, request, lambda key: records.put(_catalog(request), entry, key, given))
        return await self._table(request, entry, view=view, part="record.html")

    async def delete(self, request: Request) -> Response:
        """Delete one record."""
        entry = _entry_to_change(request)
        if not (etag := request.query_params.get("etag")):
            raise MalformedRequest("what is deleted has an etag")
        view = await _at_key(entry, request, lambda key: records.delete(_catalog(request), entry, key, etag))
        return await self._table(request, entry, view=view, part="record.html")

    def trouble(self, request: Request, error: TableError) -> Response:
        """Answer what goes wrong: a page with a page, a part of one with a problem, which its script shows."""
        if request.headers.get("hx-request") == "true" or request.method not in ("GET", "HEAD"):
            return problem_response(error, guard.PAGE_HEADERS)
        return self._page(request, "trouble.html", {"trouble": trouble(error)}, problems.status(error))

    async def _overview(self, request: Request, template: str) -> Response:
        self._console.looked()
        name = request.query_params.get("name", "")[:128]
        shown = await overview.live(self._console, request, name)
        return self._page(request, template, {"name": name, **shown})

    async def _table(
        self,
        request: Request,
        entry: CatalogEntry,
        *,
        view: View | None = None,
        scan: Mapping[str, Any] | None = None,
        part: str = "",
    ) -> Response:
        self._console.looked()
        given = {
            "entry": entry,
            "view": view,
            "scan": scan,
            "query": request.query_params,
            "edit": _settings(request).console.edit and allowed(request, entry.spec.name, "write"),
            "settings": one_table.settings(request, entry),
        }
        if part and _wants_part(request):
            return self._page(request, part, given)
        live = await one_table.live(self._console, request, entry)
        return self._page(request, "table.html", {**given, **live})

    def _page(self, request: Request, template: str, given: Mapping[str, Any], status: int = 200) -> Response:
        common = {
            "version": __version__,
            "paused": request.query_params.get("paused") == "1",
            "time": datetime.now(UTC).strftime("%H:%M:%S UTC"),
        }
        return self._rendering.page(request, template, {**common, **given}, status)


class _Endpoint:
    """A handler as an ASGI application that answers errors as the console does."""

    def __init__(self, pages: _Pages, handler: Handler) -> None:
        self._pages = pages
        self._handler = handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            response = await self._handler(request)
        except TableError as error:
            context_of(scope).code = error.code
            response = self._pages.trouble(request, error)
        await response(scope, receive, send)


def _route(pages: _Pages, path: str, handler: Handler, *methods: str) -> Route:
    return Route(
        path, _Endpoint(pages, handler), methods=methods or ["GET"], name=f"console {path}", include_in_schema=False
    )


async def _at_key(entry: CatalogEntry, request: Request, work: Callable[[Key], Awaitable[View]]) -> View:
    """Do something with the key that was given, or say what is wrong with it."""
    context_of(request.scope).operations = 1
    try:
        key = forms.key(entry.spec.key, request.query_params)
        if key is None:
            raise InvalidOperation("no key was given")
    except TableError as error:
        return View(None, trouble=trouble(error))
    return await work(key)


async def _looked_up(request: Request, entry: CatalogEntry, key: Key) -> View:
    return await records.look_up(_catalog(request), entry, key, fresh="fresh" in request.query_params)


def _entry(request: Request) -> CatalogEntry:
    """Return the table of the path. Raise Refused if whoever asks may not read one of that name, or TableNotFound."""
    name = request.path_params["table"]
    guard.check_may(request, name, "read")  # first: who may not read it is not told whether it is there
    entry = _catalog(request).entry(name)
    context_of(request.scope).table = name
    return entry


def _entry_to_change(request: Request) -> CatalogEntry:
    guard.check_change(request)
    entry = _entry(request)
    guard.check_may(request, entry.spec.name, "write")
    return entry


def _wants_part(request: Request) -> bool:
    return request.headers.get("hx-request") == "true" and "hx-history-restore-request" not in request.headers


def _catalog(request: Request) -> Catalog:
    catalog: Catalog = request.app.state.catalog
    return catalog


def _settings(request: Request) -> Any:
    return request.app.state.settings
