"""Renders pages from templates, and serves static files. Reads both once, at startup."""

import hashlib
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import Response

from . import numbers, plots
from .guard import HEADERS, PAGE_HEADERS

HERE = Path(__file__).parent

_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


class File(msgspec.Struct, frozen=True):
    """A static file: its content and media type."""

    content: bytes
    media_type: str

    def response(self) -> Response:
        """Return the file as a response. Clients may cache it, because its URL contains its digest."""
        return Response(
            self.content, media_type=self.media_type, headers={**HEADERS, "Cache-Control": "public, max-age=86400"}
        )


class Rendering:
    """Renders pages and keeps the static files."""

    def __init__(self) -> None:
        self.files = {
            path.name: File(path.read_bytes(), _TYPES[path.suffix])
            for path in sorted((HERE / "static").iterdir())
            if path.suffix in _TYPES
        }
        self._digest = hashlib.sha256(b"".join(file.content for file in self.files.values())).hexdigest()[:12]
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
