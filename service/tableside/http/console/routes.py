"""The routes of the console: each checks permissions, decodes the request, and renders a page or a part of one.

A page of another site can make a browser send a form to the console, together with the browser's credentials. It cannot
add a custom header, or claim to be of the same origin, so changes require both.
"""

import hashlib
import socket
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ... import __version__
from ...auth import Permission
from ...catalog import Catalog, CatalogEntry
from ...core import MalformedRequest, TableError
from ..request_context import context_of
from ..responses import problem_response
from ..wire import problems
from ..wire.problems import NotFound
from ..wire.request_headers import INTEGER_MAX, parse_integer
from . import generations, numbers, pages, plots, records
from .console import Console
from .records import Address, View, describe_error

TABLE_CHARACTERS_MAX = 160
"""The maximum length of the name of a table in the log. A valid name is shorter, also with a generation."""

Handler = Callable[[Request], Awaitable[Response]]


class Refused(TableError):
    """The console rejects the request of this caller."""

    code: ClassVar[str] = "forbidden"


def routes(console: Console) -> list[Route]:
    """Return the routes of the console."""
    served = _Pages(console, Rendering())
    handlers: list[tuple[str, str, Handler]] = [
        ("GET", "/console", served.overview),
        ("GET", "/console/", served.overview),
        ("GET", "/console/live", served.overview_live),
        ("GET", "/console/static/{file}", served.file),
        ("GET", "/favicon.ico", served.icon),
        ("GET", "/console/tables/{table}", served.table),
        ("GET", "/console/tables/{table}/live", served.table_live),
        ("GET", "/console/tables/{table}/records", served.scan),
        ("GET", "/console/tables/{table}/record", served.look_up),
        ("PUT", "/console/tables/{table}/record", served.put),
        ("DELETE", "/console/tables/{table}/record", served.delete),
        ("GET", "/console/tables/{table}/generations", served.list_generations),
        ("POST", "/console/tables/{table}/generations/{generation}/activate", served.activate),
        ("DELETE", "/console/tables/{table}/generations/{generation}", served.remove),
    ]
    return [
        Route(path, served.endpoint(handler), methods=[method], name=f"console {path}", include_in_schema=False)
        for method, path, handler in handlers
    ]


class _Pages:
    """The endpoints of the console."""

    def __init__(self, console: Console, rendering: "Rendering") -> None:
        self._console = console
        self._rendering = rendering

    def endpoint(self, handler: Handler) -> Handler:
        """Return an endpoint that turns the errors of a handler into pages or problems."""

        async def respond(request: Request) -> Response:
            if (name := request.path_params.get("table")) is not None:
                context_of(request.scope).table = name[:TABLE_CHARACTERS_MAX]
            try:
                return await handler(request)
            except TableError as error:
                context_of(request.scope).code = error.code
                return self._error(request, error)

        return respond

    def _error(self, request: Request, error: TableError) -> Response:
        """Return a page for an error, or a problem if the request is for a part, which the script shows."""
        if request.headers.get("hx-request") == "true" or request.method not in ("GET", "HEAD"):
            return problem_response(error, PAGE_HEADERS)
        return self._page(request, "error.html", {"error": describe_error(error)}, problems.status(error))

    async def overview(self, request: Request, template: str = "overview.html") -> Response:
        """Show all tables."""
        self._console.mark_viewed()
        name = request.query_params.get("name", "")[:128]
        shown = await pages.overview(self._console, request, name)
        return self._page(request, template, {"name": name, **shown})

    async def overview_live(self, request: Request) -> Response:
        """Return the part of the overview that is refreshed periodically."""
        return await self.overview(request, "overview_live.html")

    async def file(self, request: Request) -> Response:
        """Return a static file."""
        return self._rendering.file(request.path_params["file"])

    async def icon(self, request: Request) -> Response:
        """Return the icon that browsers request for responses that are not pages."""
        return self._rendering.file("icon.svg")

    async def table(self, request: Request) -> Response:
        """Show one table."""
        return await self._table(request, _entry(request))

    async def table_live(self, request: Request) -> Response:
        """Return the part of the page that is refreshed periodically."""
        entry = _entry(request)
        self._console.mark_viewed()
        shown = await pages.activity(self._console, request, entry)
        return self._page(request, "table_live.html", {"entry": entry, **shown})

    async def scan(self, request: Request) -> Response:
        """Show a page of a table's records."""
        entry = _entry(request)
        page = await records.scan(_catalog(request), _name(request), request.query_params)
        return await self._table(request, entry, scan=page, part="scan.html")

    async def look_up(self, request: Request) -> Response:
        """Show one record."""
        entry, fresh = _entry(request), "fresh" in request.query_params

        async def look_up(address: Address) -> View:
            return await records.look_up(_catalog(request), _name(request), address, _caller(request), fresh=fresh)

        return await self._record(request, entry, look_up)

    async def put(self, request: Request) -> Response:
        """Replace or create one record."""
        entry = _entry_to_change(request)
        fields = await records.read_form(request)

        async def put(address: Address) -> View:
            return await records.put(_catalog(request), _name(request), address, _caller(request), fields)

        return await self._record(request, entry, put)

    async def delete(self, request: Request) -> Response:
        """Delete one record."""
        entry = _entry_to_change(request)
        if not (etag := request.query_params.get("etag")):
            raise MalformedRequest("a delete needs an etag")

        async def delete(address: Address) -> View:
            return await records.delete(_catalog(request), _name(request), address, _caller(request), etag)

        return await self._record(request, entry, delete)

    async def list_generations(self, request: Request) -> Response:
        """Show the generations of a table."""
        entry = _entry(request)
        shown = await generations.listed(_catalog(request), _name(request))
        return await self._table(request, entry, shown=shown, part="generations.html")

    async def activate(self, request: Request) -> Response:
        """Make a generation current."""
        entry, number = _entry_to_change(request), _generation(request)
        expected = _integer(request.query_params, "expected")
        shown = await generations.activate(_catalog(request), _name(request), number, expected)
        return await self._table(request, entry, shown=shown, part="generations.html")

    async def remove(self, request: Request) -> Response:
        """Delete a generation."""
        entry, number = _entry_to_change(request), _generation(request)
        shown = await generations.remove(_catalog(request), _name(request), number)
        return await self._table(request, entry, shown=shown, part="generations.html")

    async def _record(
        self, request: Request, entry: CatalogEntry, work: Callable[[Address], Awaitable[View]]
    ) -> Response:
        """Show the view that `work` returns for the address of the request's record, or an invalid address."""
        context_of(request.scope).operations = 1
        try:
            address = records.parse_address(entry.spec, request.query_params)
        except TableError as error:
            view = View(None, error=describe_error(error))
        else:
            view = await work(address)
        return await self._table(request, entry, view=view, part="record.html")

    async def _table(
        self,
        request: Request,
        entry: CatalogEntry,
        *,
        view: View | None = None,
        scan: Mapping[str, Any] | None = None,
        shown: generations.Shown | None = None,
        part: str = "",
    ) -> Response:
        """Show a table, with a record, a page of records or its generations, or only this part for the script."""
        self._console.mark_viewed()
        name = _name(request)
        for one in (view, shown):
            if one is not None and one.error is not None:
                context_of(request.scope).code = one.error.code
        given = {
            "entry": entry,
            "name": name,
            "view": view,
            "scan": scan,
            "generations": shown,
            "has_generations": generations.has_generations(entry, name),
            "query": request.query_params,
            "edit": _settings(request).console.edit
            and context_of(request.scope).permissions.may("write", name)
            and (name == entry.spec.name or entry.spec.loading),
            "settings": pages.settings(request, entry),
        }
        if part and request.headers.get("hx-request") == "true" and "hx-history-restore-request" not in request.headers:
            return self._page(request, part, given)
        active = await pages.activity(self._console, request, entry)
        return self._page(request, "table.html", {**given, **active})

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


def _name(request: Request) -> str:
    """Return the name in the path: of a table, of one generation of it, or of its companion."""
    name: str = request.path_params["table"]
    return name


def _generation(request: Request) -> int:
    """Return the number of the generation in the path, and note it for the audit log."""
    number = _integer(request.path_params, "generation")
    context_of(request.scope).detail = f"generation {number}"
    return number


def _integer(given: Mapping[str, str], name: str) -> int:
    return parse_integer(given.get(name, ""), name, INTEGER_MAX)


def _entry(request: Request, permission: Permission = "read") -> CatalogEntry:
    """Return the table in the path. Raise Refused if the caller lacks the permission, or TableNotFound."""
    name = _name(request)
    # Check before the lookup, so that the response does not reveal whether the table exists.
    if not context_of(request.scope).permissions.may(permission, name):
        raise Refused(f"{permission} is not allowed on this table")
    return _catalog(request).entry(name)


def _entry_to_change(request: Request) -> CatalogEntry:
    """Return the table in the path. Raise Refused unless its records may be changed, from a page of the console."""
    if not _settings(request).console.edit:
        raise Refused("the console is read-only: the configuration does not set console.edit")
    if request.headers.get("hx-request") != "true" or not _same_origin(request):
        raise Refused("only pages of the console may send this request")
    _entry(request)
    return _entry(request, "write")


def _same_origin(request: Request) -> bool:
    if (site := request.headers.get("sec-fetch-site")) is not None:
        return site == "same-origin"
    origin, host = request.headers.get("origin"), request.headers.get("host")
    return origin is not None and host is not None and urlsplit(origin).netloc == host


def _catalog(request: Request) -> Catalog:
    catalog: Catalog = request.app.state.catalog
    return catalog


def _caller(request: Request) -> str:
    return context_of(request.scope).caller or ""


def _settings(request: Request) -> Any:
    return request.app.state.settings


HERE = Path(__file__).parent

_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)

HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}

PAGE_HEADERS = {**HEADERS, "Cache-Control": "no-store", "Vary": "HX-Request"}


class Rendering:
    """Renders pages and keeps the static files."""

    def __init__(self) -> None:
        paths = [path for path in sorted((HERE / "static").iterdir()) if path.suffix in _TYPES]
        self._files = {path.name: path.read_bytes() for path in paths}
        self._digest = hashlib.sha256(b"".join(self._files.values())).hexdigest()[:12]
        self._templates = Environment(
            loader=FileSystemLoader(HERE / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._templates.filters |= {
            "count": numbers.count,
            "rate": numbers.rate,
            "seconds": numbers.seconds,
            "share": numbers.share,
            "size": numbers.size_bytes,
        }
        self._templates.globals |= {"plots": plots, "host": socket.gethostname()}
        for name in self._templates.list_templates():
            self._templates.get_template(name)  # load now, so that later changes of the files have no effect

    def page(self, request: Request, template: str, values: Mapping[str, Any], status: int = 200) -> Response:
        """Render a page, or a fragment of one."""
        root = request.scope.get("root_path", "")
        text = self._templates.get_template(template).render(
            root=root, base=f"{root}/console", url=str(request.base_url).rstrip("/"), digest=self._digest, **values
        )
        return Response(text, status, PAGE_HEADERS, media_type="text/html")

    def file(self, name: str) -> Response:
        """Return a static file. Clients may cache it, because its URL contains its digest. Raise NotFound."""
        if (content := self._files.get(name)) is None:
            raise NotFound("no such file")
        headers = {**HEADERS, "Cache-Control": "public, max-age=86400"}
        return Response(content, media_type=_TYPES[Path(name).suffix], headers=headers)
