"""The routes of the console: each decodes the request, calls another module, and renders the page."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from ... import __version__
from ...catalog import Catalog, CatalogEntry
from ...core import MalformedRequest, TableError
from ..request_context import context_of
from ..responses import problem_response
from ..wire import problems
from ..wire.problems import NotFound
from . import forms, guard, overview, records, table_page
from .console import Console
from .error_messages import describe_error
from .forms import Address
from .records import View
from .rendering import Rendering

Handler = Callable[[Request], Awaitable[Response]]


def routes(console: Console) -> list[Route]:
    """Return the routes of the console."""
    pages = _Pages(console, Rendering())
    return [
        _route(pages, "/console", pages.overview),
        _route(pages, "/console/", pages.overview),
        _route(pages, "/console/live", pages.overview_live),
        _route(pages, "/console/static/{file}", pages.file),
        _route(pages, "/favicon.ico", pages.icon),
        _route(pages, "/console/tables/{table}", pages.table),
        _route(pages, "/console/tables/{table}/live", pages.table_live),
        _route(pages, "/console/tables/{table}/records", pages.scan),
        _route(pages, "/console/tables/{table}/record", pages.look_up),
        _route(pages, "/console/tables/{table}/record", pages.put, "PUT"),
        _route(pages, "/console/tables/{table}/record", pages.delete, "DELETE"),
    ]


class _Pages:
    """The endpoints of the console."""

    def __init__(self, console: Console, rendering: Rendering) -> None:
        self._console = console
        self._rendering = rendering

    async def overview(self, request: Request) -> Response:
        """Show all tables."""
        return await self._overview(request, "overview.html")

    async def overview_live(self, request: Request) -> Response:
        """Return the fragment of the overview that is refreshed periodically."""
        return await self._overview(request, "overview_live.html")

    async def file(self, request: Request) -> Response:
        """Return a static file."""
        if (found := self._rendering.files.get(request.path_params["file"])) is None:
            raise NotFound("no such file")
        return found.response()

    async def icon(self, request: Request) -> Response:
        """Return the icon that browsers request for responses that are not pages."""
        return self._rendering.files["icon.svg"].response()

    async def table(self, request: Request) -> Response:
        """Show one table."""
        return await self._table(request, _entry(request))

    async def table_live(self, request: Request) -> Response:
        """Return the fragment of the page that is refreshed periodically."""
        entry = _entry(request)
        self._console.mark_viewed()
        shown = await table_page.live(self._console, request, entry)
        return self._page(request, "table_live.html", {"entry": entry, **shown})

    async def scan(self, request: Request) -> Response:
        """Show a page of a table's records."""
        entry = _entry(request)
        page = await records.scan(_catalog(request), entry, request.query_params)
        return await self._table(request, entry, scan=page, part="scan.html")

    async def look_up(self, request: Request) -> Response:
        """Show one record."""
        entry = _entry(request)
        view = await _at_address(entry, request, lambda address: _looked_up(request, entry, address))
        return await self._table(request, entry, view=view, part="record.html")

    async def put(self, request: Request) -> Response:
        """Replace or create one record."""
        entry = _entry_to_change(request)
        given = await forms.form(request)
        view = await _at_address(entry, request, lambda address: records.put(_catalog(request), entry, address, given))
        return await self._table(request, entry, view=view, part="record.html")

    async def delete(self, request: Request) -> Response:
        """Delete one record."""
        entry = _entry_to_change(request)
        if not (etag := request.query_params.get("etag")):
            raise MalformedRequest("a delete needs an etag")
        view = await _at_address(
            entry, request, lambda address: records.delete(_catalog(request), entry, address, etag)
        )
        return await self._table(request, entry, view=view, part="record.html")

    def error(self, request: Request, error: TableError) -> Response:
        """Return a page for an error, or a problem if the request is for a fragment, which the script shows."""
        if request.headers.get("hx-request") == "true" or request.method not in ("GET", "HEAD"):
            return problem_response(error, guard.PAGE_HEADERS)
        return self._page(request, "error.html", {"error": describe_error(error)}, problems.status(error))

    async def _overview(self, request: Request, template: str) -> Response:
        self._console.mark_viewed()
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
        self._console.mark_viewed()
        given = {
            "entry": entry,
            "view": view,
            "scan": scan,
            "query": request.query_params,
            "edit": _settings(request).console.edit and guard.allowed(request, entry.spec.name, "write"),
            "settings": table_page.settings(request, entry),
        }
        if part and _wants_part(request):
            return self._page(request, part, given)
        live = await table_page.live(self._console, request, entry)
        return self._page(request, "table.html", {**given, **live})

    def _page(self, request: Request, template: str, given: Mapping[str, Any], status: int = 200) -> Response:
        settings = _settings(request)
        common = {
            "version": __version__,
            "auth": settings.auth is not None,
            "metrics": settings.auth is None or settings.auth.metrics != "admin",
            "auto_create": settings.auto_create,
            "paused": request.query_params.get("paused") == "1",
            "time": datetime.now(UTC).strftime("%H:%M:%S UTC"),
        }
        return self._rendering.page(request, template, {**common, **given}, status)


class _Endpoint:
    """An ASGI application that calls a handler, and turns its errors into pages or problems."""

    def __init__(self, pages: _Pages, handler: Handler) -> None:
        self._pages = pages
        self._handler = handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            response = await self._handler(request)
        except TableError as error:
            context_of(scope).code = error.code
            response = self._pages.error(request, error)
        await response(scope, receive, send)


def _route(pages: _Pages, path: str, handler: Handler, *methods: str) -> Route:
    return Route(
        path, _Endpoint(pages, handler), methods=methods or ["GET"], name=f"console {path}", include_in_schema=False
    )


async def _at_address(entry: CatalogEntry, request: Request, work: Callable[[Address], Awaitable[View]]) -> View:
    """Call `work` with the address of the request's record, or return the view of an invalid address."""
    context_of(request.scope).operations = 1
    try:
        address = forms.address(entry.spec, request.query_params)
    except TableError as error:
        return View(None, error=describe_error(error))
    return await work(address)


async def _looked_up(request: Request, entry: CatalogEntry, address: Address) -> View:
    return await records.look_up(_catalog(request), entry, address, fresh="fresh" in request.query_params)


def _entry(request: Request) -> CatalogEntry:
    """Return the table in the path. Raise Refused if the caller may not read it, or TableNotFound."""
    name = request.path_params["table"]
    # Check before the lookup, so that the response does not reveal whether the table exists.
    guard.check_permission(request, name, "read")
    entry = _catalog(request).entry(name)
    context_of(request.scope).table = name
    return entry


def _entry_to_change(request: Request) -> CatalogEntry:
    guard.check_change(request)
    entry = _entry(request)
    guard.check_permission(request, entry.spec.name, "write")
    return entry


def _wants_part(request: Request) -> bool:
    return request.headers.get("hx-request") == "true" and "hx-history-restore-request" not in request.headers


def _catalog(request: Request) -> Catalog:
    catalog: Catalog = request.app.state.catalog
    return catalog


def _settings(request: Request) -> Any:
    return request.app.state.settings
