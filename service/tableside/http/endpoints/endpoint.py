"""Handlers as ASGI applications, and the request that they receive.

Exceptions that a handler raises pass through: the middleware turns them into problem details.
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from ...auth import UNRESTRICTED, Caller
from ...catalog import Catalog
from ...core import TableNotFound, TooLarge
from ...settings import NAME, LimitSettings
from ..request_context import CALLER_KEY, SCOPE_KEY, RequestContext
from ..wire import request_headers
from ..wire.problems import NotFound

_NAME = re.compile(NAME)
_RAW_PATH = re.compile(rb"/v1/tables/([^/]+)(?:/(?:records|batch|splits)(?:/(.*))?)?", re.DOTALL)


class ServiceRequest(Request):
    """A request with access to the open tables and the limits of the service."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        super().__init__(scope, receive)
        self.catalog: Catalog = scope["app"].state.catalog

    @property
    def limits(self) -> LimitSettings:
        """The limits in the current settings."""
        limits: LimitSettings = self.app.state.settings.limits
        return limits

    async def read_body(self) -> bytes:
        """Read the whole body. Raise TooLarge if it exceeds `body_bytes_max`."""
        bytes_max = self.limits.body_bytes_max
        declared = request_headers.header(self, "content-length")
        if declared is not None and int(declared) > bytes_max:
            raise TooLarge(f"a body may have at most {bytes_max} bytes")
        chunks, size_bytes = [], 0
        async for chunk in self.stream():
            size_bytes += len(chunk)
            if size_bytes > bytes_max:
                raise TooLarge(f"a body may have at most {bytes_max} bytes")
            chunks.append(chunk)
        return b"".join(chunks)


class TableRequest(ServiceRequest):
    """A request for a table: `table_name` and `key_segments` are from its path, `context` is what the log shows of it.

    The segments are still percent-encoded. The decoded path of the ASGI scope cannot distinguish `a%2Fb`, one segment,
    from `a/b`, two segments.
    """

    def __init__(self, scope: Scope, receive: Receive) -> None:
        super().__init__(scope, receive)
        raw: bytes = scope.get("raw_path") or scope["path"].encode()
        match = _RAW_PATH.fullmatch(raw)
        if match is None:  # The path contains an encoded slash in the place of a plain one.
            raise NotFound("no such path")
        name = match[1].decode("latin-1")
        if "%" in name:
            name = unquote(name)
        if not _NAME.fullmatch(name):
            raise TableNotFound("no table has that name")
        self.context: RequestContext = scope[SCOPE_KEY]
        self.context.table = name
        self.table_name = name
        self.key_segments: list[bytes] = [] if match[2] is None else match[2].split(b"/")

    async def read_body(self) -> bytes:
        """Read the whole body. Raise Overloaded, without reading it, if the table's store takes no operation now."""
        self.catalog.check_admission(self.table_name)
        return await super().read_body()


ServiceHandler: TypeAlias = Callable[[ServiceRequest], Awaitable[Response]]
TableHandler: TypeAlias = Callable[[TableRequest], Awaitable[Response]]
PermissionCheck: TypeAlias = Callable[[TableRequest, Caller], None]


def check_any(request: TableRequest, caller: Caller) -> None:
    """Raise Forbidden if the caller has no permission on the table."""
    caller.check_any(request.table_name)


def check_read(request: TableRequest, caller: Caller) -> None:
    """Raise Forbidden if the caller may not read the table."""
    caller.check("read", request.table_name)


class ServiceEndpoint:
    """A handler as an ASGI application, without permission checks."""

    def __init__(self, handler: ServiceHandler) -> None:
        self._handler = handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the handler and send its response."""
        response = await self._handler(ServiceRequest(scope, receive))
        await response(scope, receive, send)


class TableEndpoint:
    """Handlers of one path, by method, as an ASGI application.

    `check` runs before the body is read and anything is looked up. `operations` is the number of operations in each
    request, or 0 if it varies.
    """

    def __init__(self, handlers: Mapping[str, TableHandler], check: PermissionCheck, operations: int = 0) -> None:
        self._handlers = handlers
        self._check = check
        self._operations = operations

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check the permission, call the handler of the method and send its response."""
        request, caller = TableRequest(scope, receive), scope[CALLER_KEY]
        if caller is not UNRESTRICTED:
            self._check(request, caller)
        request.context.operations = self._operations
        response = await self._handlers[scope["method"]](request)
        await response(scope, receive, send)


def get_route(path: str, handler: ServiceHandler) -> Route:
    """Return a route for GET and HEAD that needs no permission on a table."""
    return Route(path, ServiceEndpoint(handler), methods=["GET"])


def table_route(path: str, check: PermissionCheck, operations: int = 0, **handlers: TableHandler) -> Route:
    """Return a route with a handler for each method. HEAD requests go to the handler of GET."""
    by_method = {**handlers, "HEAD": handlers["GET"]} if "GET" in handlers else handlers
    return Route(path, TableEndpoint(by_method, check, operations), methods=[*by_method])
