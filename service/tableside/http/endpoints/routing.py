"""Declared endpoints as ASGI applications, the router that finds them, and the requests that they receive.

FastAPI describes the endpoints in the OpenAPI document. Its own way to call them takes longer than a whole operation:
it would halve the rate of single requests. Exceptions of endpoints pass through: the middleware turns them into problem
details.
"""

import asyncio
import inspect
import math
import re
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from typing import Annotated, Any, TypeVar, get_args, get_origin
from urllib.parse import parse_qsl, unquote

import msgspec
from fastapi import APIRouter, params
from fastapi.routing import APIRoute
from pydantic import PlainValidator
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from ...auth import UNRESTRICTED, Caller
from ...catalog import Catalog, Table
from ...core import (
    Budget,
    DeadlineExceeded,
    InvalidOperation,
    MalformedRequest,
    TableNotFound,
    TableSpec,
    TooLarge,
    ValueRoom,
)
from ...settings import NAME, LimitSettings
from ..request_context import SCOPE_KEY, RequestContext
from ..wire.answers import JSON
from ..wire.members import MEMBERS
from ..wire.operation_members import display_name
from ..wire.problems import MethodNotAllowed, NotFound, UnsupportedMediaType
from ..wire.request_headers import Preferences, check_accepts, parse_preferences

SHORT_BODY_BYTES_MAX = 2**16
"""The maximum size of a body with one operation that the event loop decodes itself. A thread decodes longer ones."""

FORGETS = "forget"
"""The detail in the audit log of requests that delete the tokens and orders of records, too."""

_REFUSED = {
    name.lower().encode(): (name, one.name, one.refuse) for one in MEMBERS if one.refuse for name in one.parameters
}
_BODY_CODINGS = frozenset({b"content-encoding", b"transfer-encoding"})

Found = TypeVar("Found")


class ServiceRequest(Request):
    """A request with access to the open tables and the limits of the service.

    `table_name` is the table in the path, "" if there is none. `received_at` is the time of `time.monotonic` at which
    the body was complete, where deadlines begin. `body_bytes` is the size of the body in memory.
    """

    def __init__(self, scope: Scope, receive: Receive) -> None:
        super().__init__(scope, receive)
        self.catalog: Catalog = scope["app"].state.catalog
        self.context: RequestContext = scope[SCOPE_KEY]
        self.table_name: str = self.context.table or ""
        self.received_at, self.body_bytes = time.monotonic(), 0

    @property
    def caller(self) -> Caller:
        """The authenticated caller."""
        return self.context.permissions

    @property
    def limits(self) -> LimitSettings:
        """The limits in the current settings."""
        limits: LimitSettings = self.app.state.settings.limits
        return limits

    def header(self, name: bytes) -> str | None:
        """Return a header by its name in lower case, repeated headers joined by commas, or None if it is absent."""
        raw = self.context.headers.get(name)
        return None if raw is None else raw.decode("latin-1")

    def refused(self, *when: str) -> tuple[str, str] | None:
        """Return a header that the request has although it is refused, and the member that it would give."""
        if _REFUSED.keys().isdisjoint(self.context.headers):
            return None
        given = [refused for header, refused in _REFUSED.items() if header in self.context.headers]
        return next(((header, member) for header, member, refuse in given if refuse in when), None)

    def media_type(self, known: Collection[str], default: str | None = None) -> str:
        """Return the media type of the body, one of `known`. Raise UnsupportedMediaType if it is another."""
        given = self.header(b"content-type") or default or ""
        if _BODY_CODINGS.isdisjoint(self.context.headers) and given in known:
            return given
        if (self.header(b"content-encoding") or "identity").lower() != "identity":
            raise UnsupportedMediaType("a body with a Content-Encoding is not supported")
        if (self.header(b"transfer-encoding") or "chunked").lower() != "chunked":
            raise UnsupportedMediaType("chunked is the only supported transfer coding")
        essence, _, parameters = given.partition(";")
        charset = parameters and re.search(r"charset\s*=\s*\"?([^\s\";]+)", parameters, re.IGNORECASE)
        if essence.strip().lower() not in known or (
            charset and charset[1].lower() not in ("utf-8", "utf8", "us-ascii")
        ):
            raise UnsupportedMediaType(f"the body must be one of: {', '.join(sorted(known))}")
        return essence.strip().lower()

    def check_accepts(self, media: str = JSON) -> None:
        """Raise NotAcceptable if `Accept` excludes the media type of the response."""
        check_accepts(self.header(b"accept"), media)

    async def read_body(self) -> bytes:
        """Read the whole body, and note when it was received. Raise TooLarge if it exceeds `body_bytes_max`.

        Raise Overloaded, without reading it, if the table's store takes no operation now.
        """
        self.catalog.check_admission(self.table_name)
        bytes_max = self.limits.body_bytes_max
        declared = self.header(b"content-length")
        if declared is not None and int(declared) > bytes_max:
            raise TooLarge(f"a body may have at most {bytes_max} bytes")
        chunks, size_bytes, more = [], 0, True
        while more:  # Starlette's generator takes longer than the rest of a write.
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

    async def created_table(self) -> Table:
        """Create the table of a write, and note that for the audit log."""
        table = await self.catalog.table_to_write(self.table_name)
        self.context.detail = "new table"
        return table

    def budget(self, table: Table | TableSpec, prefer: Preferences | None, room: ValueRoom | None = None) -> Budget:
        """Return what the request may use. The deadline of a table that does not exist yet is unknown."""
        own_s = math.inf if isinstance(table, TableSpec) else table.deadline_s
        allowed_s = own_s if prefer is None or prefer.wait_s is None else min(prefer.wait_s, own_s)
        until, caller = self.received_at + allowed_s, self.context.caller or ""
        return Budget(until, self.table_name, caller, self.body_bytes, room)

    def within(self, prefer: Preferences | None, lookup: Coroutine[Any, Any, Found]) -> Coroutine[Any, Any, Found]:
        """Return the result of a lookup in the catalog. Raise DeadlineExceeded if the client does not wait for it.

        The table's own deadline limits every lookup.
        """
        return lookup if prefer is None or prefer.wait_s is None else self._within(prefer.wait_s, lookup)

    async def _within(self, wait_s: float, lookup: Coroutine[Any, Any, Found]) -> Found:
        try:
            async with asyncio.timeout_at(self.received_at + wait_s):
                return await lookup
        except TimeoutError:
            raise DeadlineExceeded("the store of the table did not answer before the request's deadline") from None

    def reserve(self, body_bytes: int) -> None:
        """Count a body with so many bytes once it is decompressed. Raise Overloaded above the limit."""
        assert self.context.reservation is not None
        self.context.reservation.grow_body_to(body_bytes)
        self.body_bytes = max(self.body_bytes, body_bytes)


# Checks of permissions, which endpoints declare as their dependencies. A service without authentication skips them.


def check_any(request: ServiceRequest) -> None:
    """Raise Forbidden if the caller has no permission on the table."""
    request.caller.check_any(request.table_name)


def check_read(request: ServiceRequest) -> None:
    """Raise Forbidden if the caller may not read the table."""
    request.caller.check("read", request.table_name)


def check_write(request: ServiceRequest) -> None:
    """Raise Forbidden if the caller may not write the table, or not read it, and requests the value after a write."""
    request.caller.check("write", request.table_name)
    prefer = None if request.method == "DELETE" else request.header(b"prefer")
    if prefer is not None and parse_preferences(prefer).representation:
        check_read(request)


_NAME = re.compile(rf"{NAME[1:-1]}(@(runs|[0-9]{{1,18}}))?")
_TABLES = "/v1/tables/"

_LISTS = frozenset({b"cache-control", b"if-match", b"if-none-match", b"prefer"})
"""Headers that are lists, so that they may be repeated."""


def new_router(tag: str) -> APIRouter:
    """Return a router for endpoints with this tag. Their names are the ids of their operations."""
    return APIRouter(
        tags=[tag],
        route_class=Endpoint,
        default_response_class=Response,
        generate_unique_id_function=lambda route: route.name,
    )


class Endpoint(APIRoute):
    """A route that FastAPI describes, and that calls the parsers of its parameters itself.

    First it calls the route's dependencies, which check permissions, unless the caller is unrestricted. Then it passes
    the request, the parameters in the path, and those in the query and in headers that the request has. The first line
    of the endpoint's docstring is the summary in the OpenAPI document. Its rest is the description, unless `options`
    have one.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, endpoint, **options)
        summary, _, description = inspect.cleandoc(endpoint.__doc__ or "").partition("\n\n")
        self.description = options.get("description") or description
        self.summary = self.summary or summary.rstrip(".")
        self.app = self._serve
        self._checks = [one.dependency for one in self.dependencies if one.dependency is not None]
        self.parameters = _Parameters(endpoint, ignores_query=not path.startswith("/v1"))

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = ServiceRequest(scope, receive)
        if request.context.permissions is not UNRESTRICTED:
            for check in self._checks:
                check(request)
        response = await self.endpoint(request, *request.context.path, **self.parameters.parse(request))
        await response(scope, receive, send)


class _Parameter(msgspec.Struct, frozen=True):
    """A declared parameter: the name of the argument, and the parser of its text."""

    argument: str
    parse: Callable[[str], Any]


class _Parameters:
    """The parameters of an endpoint in queries and headers, from its signature and the structs in its `Depends()`."""

    def __init__(self, endpoint: Callable[..., Any], *, ignores_query: bool) -> None:
        self._structs: dict[str, Any] = {
            argument: one.dependency or given[0]
            for argument, given in _annotated(endpoint)
            for one in given
            if isinstance(one, params.Depends)
        }
        self._defaults = {argument: struct() for argument, struct in self._structs.items()}
        self._query: dict[str, _Parameter] = {}
        self._headers: dict[bytes, _Parameter] = {}
        for declaring in (endpoint, *self._structs.values()):
            self._query |= _declared(declaring, params.Query)
            self._headers |= {name.encode(): one for name, one in _declared(declaring, params.Header).items()}
        self._ignores_query = ignores_query

    def parse(self, request: ServiceRequest) -> Mapping[str, Any]:
        """Return the endpoint's arguments. Raise MalformedRequest if a parameter is unknown or occurs twice."""
        has_query = request.scope["query_string"] and not self._ignores_query
        given = request.context.headers
        if not has_query and self._headers.keys().isdisjoint(given):
            return self._defaults  # Most requests
        found: dict[str, Any] = {}
        for header_name in [name for name in given if name in self._headers]:
            if header_name not in _LISTS and [one for one, _ in request.scope["headers"]].count(header_name) > 1:
                raise MalformedRequest(f"{header_name.decode().title()} occurs twice")
            header = self._headers[header_name]
            found[header.argument] = header.parse(given[header_name].decode("latin-1"))
        query = request.scope["query_string"].decode("latin-1") if has_query else ""
        for name, text in parse_qsl(query, keep_blank_values=True):
            if (parameter := self._query.get(name)) is None or parameter.argument in found:
                reason = "is unknown" if parameter is None else "occurs twice"
                raise MalformedRequest(f"a query parameter {display_name(name)} {reason}")
            found[parameter.argument] = parameter.parse(text)
        for argument, struct in self._structs.items():
            if found.keys().isdisjoint(names := struct.__struct_fields__):
                found[argument] = self._defaults[argument]
            else:
                found[argument] = struct(**{name: found.pop(name) for name in names if name in found})
        return found


def _declared(declaring: Callable[..., Any], kind: type[params.Param]) -> dict[str, _Parameter]:
    """Return the parameters of one kind in a signature, by their names in lower case."""
    found = {}
    for argument, given in _annotated(declaring):
        parsers: list[Any] = [one.func for one in given if isinstance(one, PlainValidator)]
        for one in given:
            if isinstance(one, kind):
                found[(one.alias or argument).lower()] = _Parameter(argument, parsers[0] if parsers else str)
    return found


def _annotated(declaring: Callable[..., Any]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield the arguments in a signature whose types are annotated, and the types with their annotations."""
    for argument, declared in inspect.signature(declaring, eval_str=True).parameters.items():
        if get_origin(declared.annotation) is Annotated:
            yield argument, get_args(declared.annotation)


class Router:
    """Finds the route of a request. The router of the framework takes several times as long.

    The paths of tables are matched unchanged, still percent-encoded: the decoded path of the ASGI scope cannot
    distinguish `a%2Fb`, one segment of a key, from `a/b`, two segments.
    """

    def __init__(self, routes: Iterable[BaseRoute]) -> None:
        self._routes: dict[re.Pattern[str], dict[str, Route]] = {}
        for route in routes:
            assert isinstance(route, Route)
            by_method = self._routes.setdefault(route.path_regex, {})
            by_method |= dict.fromkeys(route.methods or (), route)
            if "GET" in by_method:
                by_method.setdefault("HEAD", by_method["GET"])

    def find(self, scope: Scope) -> Route:
        """Return the route of a request, and store the parameters in its path in its context.

        Raise NotFound or MethodNotAllowed. If the path contains no valid name of a table, raise TableNotFound for a
        read, InvalidOperation for others.
        """
        path, method = scope["path"], scope["method"]
        if of_table := path.startswith(_TABLES):
            path = (scope.get("raw_path") or path.encode()).decode("latin-1")
        for pattern, by_method in self._routes.items():
            if (match := pattern.fullmatch(path)) is None:
                continue
            found = match.groups()
            if of_table:
                found = (_table_name(found[0], method), *found[1:])
            else:
                scope["path_params"] = match.groupdict()
            if method not in by_method:
                raise MethodNotAllowed(by_method)
            context: RequestContext = scope[SCOPE_KEY]
            context.path = found
            if of_table:
                # A path with a key is one operation. A batch counts its own.
                context.table, context.operations = found[0], len(found) - 1
            return by_method[method]
        raise NotFound("no such path")  # Perhaps it contains an encoded slash in the place of a plain one.


def _table_name(raw: str, method: str) -> str:
    name = unquote(raw) if "%" in raw else raw
    if not _NAME.fullmatch(name):
        raise (TableNotFound if method in ("GET", "HEAD") else InvalidOperation)(
            "the name of a table in the path is not valid: it has 1 to 128 letters, digits, _, . and -, "
            "and begins with a letter or digit"
        )
    return name
