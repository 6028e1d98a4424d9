"""The routes of the console: each checks permissions, decodes the request, and renders a page. No page has a script."""

import socket
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ... import __version__
from ...auth import Forbidden
from ...catalog import CatalogEntry
from ...core import TableError
from ..request_context import context_of
from ..wire import problems
from ..wire.answers import rfc3339
from . import numbers, pages
from .console import Console

TABLE_CHARACTERS_MAX = 160
"""The maximum length of the name of a table in the log. A valid name is shorter, also with a generation."""

HERE = Path(__file__).parent

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; "
        "frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}

Handler: TypeAlias = Callable[[Request], Awaitable[Response]]
Values: TypeAlias = Callable[[Console, Request, CatalogEntry, str], Awaitable[Mapping[str, Any]]]

TABLE_PAGES: dict[str, tuple[str, Values]] = {
    "": ("table.html", pages.activity),
    "/generations": ("generations.html", pages.generations),
    "/record": ("records.html", pages.record),
    "/records": ("records.html", pages.scan),
}
"""The template of each page of a table, and the function that returns its values."""


def routes(console: Console) -> list[Route]:
    """Return the routes of the console."""
    served = _Pages(console)
    handlers: dict[str, Handler] = {
        "/console": served.overview,
        "/console/": served.overview,
        "/console/console.css": _file("console.css", "text/css"),
        "/favicon.ico": _file("icon.svg", "image/svg+xml"),
        **{f"/console/tables/{{table}}{path}": partial(served.table, *page) for path, page in TABLE_PAGES.items()},
    }
    return [
        Route(path, handler, methods=["GET"], name=f"console {path}", include_in_schema=False)
        for path, handler in handlers.items()
    ]


def _file(name: str, media_type: str) -> Handler:
    content = (HERE / "static" / name).read_bytes()
    headers = {**HEADERS, "Cache-Control": "public, max-age=3600"}

    async def respond(request: Request) -> Response:
        return Response(content, media_type=media_type, headers=headers)

    return respond


class _Pages:
    """The endpoints of the console."""

    def __init__(self, console: Console) -> None:
        self._console = console
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
            "time": rfc3339,
        }
        self._templates.globals |= {"host": socket.gethostname(), "version": __version__}
        for name in self._templates.list_templates():
            self._templates.get_template(name)  # load now, so that later changes of the files have no effect

    async def overview(self, request: Request) -> Response:
        """Show all tables."""
        name = request.query_params.get("name", "")[:128]
        return self._page(request, "overview.html", await pages.overview(self._console, request, name))

    async def table(self, template: str, values: Values, request: Request) -> Response:
        """Show a page of the table in the path, or of an error."""
        name: str = request.path_params["table"]  # a table, one generation of it, or its companion
        context = context_of(request.scope)
        context.table = name[:TABLE_CHARACTERS_MAX]
        try:
            # Check before the lookup, so that the response does not reveal whether the table exists.
            if not context.permissions.may("read", name):
                raise Forbidden("read is not allowed on this table")
            entry = request.app.state.catalog.entry(name)
            given = await values(self._console, request, entry, name)
            return self._page(request, template, {"entry": entry, "name": name, "query": request.query_params, **given})
        except TableError as error:
            context.code = error.code
            meaning = problems.CODES[error.code][1]
            return self._page(request, "error.html", {"error": error, "meaning": meaning}, problems.status(error))

    def _page(self, request: Request, template: str, values: Mapping[str, Any], status: int = 200) -> Response:
        root = request.scope.get("root_path", "")
        time = datetime.now(UTC).strftime("%H:%M:%S UTC")
        text = self._templates.get_template(template).render(root=root, base=f"{root}/console", time=time, **values)
        return Response(text, status, {**HEADERS, "Cache-Control": "no-store"}, media_type="text/html")
