"""Handlers as ASGI applications, the request that they receive, and the router that finds them.

Exceptions that a handler raises pass through: the middleware turns them into problem details.
"""

import math
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeAlias
from urllib.parse import unquote

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from ...auth import UNRESTRICTED, Caller
from ...catalog import RUNS, Catalog, Table
from ...core import InvalidOperation, TableNotFound, TableSpec, TooLarge
from ...settings import NAME, LimitSettings
from ..request_context import CALLER_KEY, RESERVATION_KEY, SCOPE_KEY, RequestContext
from ..wire import request_headers
from ..wire.problems import NotFound

SHORT_BODY_BYTES_MAX = 2**16
"""The maximum size of a body with one operation that the event loop decodes itself. A thread decodes longer ones."""

_NAME = re.compile(NAME)
_TABLES = "/v1/tables/"
_TABLE_PATH = re.compile(rb"/v1/tables/([^/]+)(?:/(records|batch|splits)(?:/(.*))?)?", re.DOTALL)
_PATH_KEY = "tableside.path"
"""The key in the ASGI scope of the table's name and the key's segments in the path."""


class ServiceRequest(Request):
    """A request with access to the open tables and the limits of the service.

    `received_at` is the time of `time.monotonic` at which the body was complete, where deadlines begin. `body_bytes` is
    the size of the body in memory.
    """

    received_at: float
    body_bytes: int

    def __init__(self, scope: Scope, receive: Receive) -> None:
        super().__init__(scope, receive)
        self.catalog: Catalog = scope["app"].state.catalog

    @property
    def limits(self) -> LimitSettings:
        """The limits in the current settings."""
        limits: LimitSettings = self.app.state.settings.limits
        return limits

    async def read_body(self) -> bytes:
        """Read the whole body, and note when it was received. Raise TooLarge if it exceeds `body_bytes_max`."""
        bytes_max = self.limits.body_bytes_max
        declared = request_headers.header(self, "content-length")
        if declared is not None and int(declared) > bytes_max:
            raise TooLarge(f"a body may have at most {bytes_max} bytes")
        chunks, size_bytes, more = [], 0, True
        while more:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            chunk, more = message.get("body", b""), message.get("more_body", False)
            size_bytes += len(chunk)
            if size_bytes > bytes_max:
                raise TooLarge(f"a body may have at most {bytes_max} bytes")
            chunks.append(chunk)
        self.received_at, self.body_bytes = time.monotonic(), size_bytes
        return b"".join(chunks)


def deadline_s(table: Table | TableSpec, wait_s: float | None) -> float:
    """Return the seconds that a request may take. The limit of a table that does not exist yet is unknown."""
    own_s = math.inf if isinstance(table, TableSpec) else table.deadline_s
    return own_s if wait_s is None else min(wait_s, own_s)


class TableRequest(ServiceRequest):
    """A request for a table: `table_name` and `key_segments` are from its path, `context` is for its log line.

    The segments are still percent-encoded. The decoded path of the ASGI scope cannot distinguish `a%2Fb`, one segment,
    from `a/b`, two segments.
    """

    def __init__(self, scope: Scope, receive: Receive) -> None:
        super().__init__(scope, receive)
        self.context: RequestContext = scope[SCOPE_KEY]
        self.table_name: str
        self.key_segments: list[bytes]
        self.table_name, self.key_segments = scope[_PATH_KEY]
        self.context.table = self.table_name

    async def read_body(self) -> bytes:
        """Read the whole body. Raise Overloaded, without reading it, if the table's store takes no operation now."""
        self.catalog.check_admission(self.table_name)
        return await super().read_body()

    def reserve(self, body_bytes: int) -> None:
        """Count a body with so many bytes once it is decompressed. Raise Overloaded above the limit."""
        self.scope[RESERVATION_KEY].grow_body_to(body_bytes)
        self.body_bytes = max(self.body_bytes, body_bytes)


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


class Router:
    """Finds the route of a request. Starlette's own router takes several times as long.

    The paths of tables are matched unchanged, still percent-encoded, and once, also for `TableRequest`.
    """

    def __init__(self, routes: Sequence[Route]) -> None:
        self._of_tables: dict[tuple[bytes | None, bool], Route] = {}
        self._others: list[Route] = []
        for route in routes:
            if (match := _TABLE_PATH.fullmatch(route.path.encode())) is not None:
                self._of_tables[match[2], match[3] is not None] = route
            else:
                self._others.append(route)

    def find(self, scope: Scope) -> Route | None:
        """Return the route of a request, or None if the framework has to respond.

        Raise NotFound. If the path contains no valid name of a table, raise TableNotFound for a read, InvalidOperation
        for others.
        """
        path, method = scope["path"], scope["method"]
        if not path.startswith(_TABLES):
            return self._find_other(scope, path, method)
        match = _TABLE_PATH.fullmatch(scope.get("raw_path") or path.encode())
        if match is None:  # Perhaps the path contains an encoded slash in the place of a plain one.
            raise NotFound("no such path")
        name, resource, key = match.groups()
        scope[_PATH_KEY] = _table_name(name, method), [] if key is None else key.split(b"/")
        route = self._of_tables.get((resource, key is not None))
        return route if route is not None and route.methods and method in route.methods else None

    def _find_other(self, scope: Scope, path: str, method: str) -> Route | None:
        for route in self._others:
            if route.methods and method in route.methods and (match := route.path_regex.fullmatch(path)) is not None:
                scope["path_params"] = match.groupdict()
                return route
        return None


def _table_name(raw: bytes, method: str) -> str:
    name = raw.decode("latin-1")
    if "%" in name:
        name = unquote(name)
    if not _NAME.fullmatch(name.removesuffix(RUNS)):
        raise (TableNotFound if method in ("GET", "HEAD") else InvalidOperation)(
            "the name of a table in the path is not valid: it has 1 to 128 letters, digits, _, . and -, "
            "and begins with a letter or digit"
        )
    return name
