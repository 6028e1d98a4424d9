"""Renders pages from templates, and serves static files. Reads both once, at startup."""

import hashlib
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import Response

from ..wire.problems import NotFound
from . import numbers, plots

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
