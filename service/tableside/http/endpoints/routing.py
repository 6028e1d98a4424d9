"""Declared endpoints as ASGI applications, and the router that finds them.

FastAPI describes the endpoints in the OpenAPI document. Its own way to call them takes longer than a whole operation:
it would halve the rate of single requests. Exceptions of endpoints pass through: the middleware turns them into problem
details.
"""

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, Any, get_args, get_origin
from urllib.parse import unquote

import msgspec
from fastapi import APIRouter, params
from fastapi.routing import APIRoute
from pydantic import PlainValidator
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from ...auth import UNRESTRICTED
from ...core import InvalidOperation, MalformedRequest, TableNotFound
from ...settings import NAME
from ..request_context import SCOPE_KEY
from ..wire.operation_members import display_name
from ..wire.problems import MethodNotAllowed, NotFound
from .requests import ServiceRequest, TableRequest

_NAME = re.compile(rf"{NAME[1:-1]}(@(runs|[0-9]{{1,18}}))?")
_TABLES = "/v1/tables/"
_TABLE_PATH = re.compile(rb"/v1/tables/([^/]+)(?:/(records|batch|splits|generations)(?:/(.*))?)?", re.DOTALL)

_LISTS = frozenset({"accept", "cache-control", "if-match", "if-none-match", "prefer"})
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
        self._request = TableRequest if path.startswith(_TABLES) else ServiceRequest
        self.parameters = _Parameters(endpoint, ignores_query=not path.startswith("/v1"))

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = self._request(scope, receive)
        if request.caller is not UNRESTRICTED:
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
        self._headers: dict[str, _Parameter] = {}
        for declaring in (endpoint, *self._structs.values()):
            self._query |= _declared(declaring, params.Query)
            self._headers |= _declared(declaring, params.Header)
        self._raw_names = frozenset(name.encode() for name in self._headers)
        self._ignores_query = ignores_query

    def parse(self, request: ServiceRequest) -> Mapping[str, Any]:
        """Return the endpoint's arguments. Raise MalformedRequest if a parameter is unknown or occurs twice."""
        names = [name for name, _ in request.scope["headers"]]
        has_query = request.scope["query_string"] and not self._ignores_query
        if not has_query and self._raw_names.isdisjoint(names):
            return self._defaults  # Most requests
        found: dict[str, Any] = {}
        for name, header in self._headers.items():
            if (text := request.header(name)) is not None:
                if name not in _LISTS and names.count(name.encode()) > 1:
                    raise MalformedRequest(f"{name.title()} occurs twice")
                found[header.argument] = header.parse(text)
        for name, text in request.query_params.multi_items() if has_query else ():
            if (known := self._query.get(name)) is None or known.argument in found:
                reason = "is unknown" if known is None else "occurs twice"
                raise MalformedRequest(f"a query parameter {display_name(name)} {reason}")
            found[known.argument] = known.parse(text)
        for argument, struct in self._structs.items():
            found[argument] = struct(**{name: found.pop(name) for name in struct.__struct_fields__ if name in found})
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
        self._of_tables: dict[tuple[bytes | None, str], dict[str, Route]] = {}
        self._others: dict[re.Pattern[str], dict[str, Route]] = {}
        for route in routes:
            assert isinstance(route, Route)
            if (match := _TABLE_PATH.fullmatch(route.path.encode())) is not None:
                by_method = self._of_tables.setdefault((match[2], _place(match[2], match[3])), {})
            else:
                # The `$` of the framework's pattern also matches before a newline at the end of a path.
                pattern = re.compile(route.path_regex.pattern.removesuffix("$") + r"\Z")
                by_method = self._others.setdefault(pattern, {})
            by_method |= dict.fromkeys(route.methods or (), route)
            if "GET" in by_method:
                by_method.setdefault("HEAD", by_method["GET"])

    def find(self, scope: Scope) -> Route:
        """Return the route of a request, and store the parameters in its path in its context.

        Raise NotFound or MethodNotAllowed. If the path contains no valid name of a table, raise TableNotFound for a
        read, InvalidOperation for others.
        """
        path, method = scope["path"], scope["method"]
        by_method = self._find_table(scope, path) if path.startswith(_TABLES) else self._find_other(scope, path)
        if not by_method:
            raise NotFound("no such path")
        if (route := by_method.get(method)) is None:
            raise MethodNotAllowed(by_method)
        return route

    def _find_table(self, scope: Scope, path: str) -> dict[str, Route]:
        match = _TABLE_PATH.fullmatch(scope.get("raw_path") or path.encode())
        if match is None:  # Perhaps the path contains an encoded slash in the place of a plain one.
            return {}
        name, resource, key = match.groups()
        table = _table_name(name, scope["method"])
        scope[SCOPE_KEY].path = (table,) if key is None else (table, key.split(b"/"))
        return self._of_tables.get((resource, _place(resource, key)), {})

    def _find_other(self, scope: Scope, path: str) -> dict[str, Route]:
        for pattern, by_method in self._others.items():
            if (match := pattern.fullmatch(path)) is not None:
                scope["path_params"] = match.groupdict()
                scope[SCOPE_KEY].path = match.groups()
                return by_method
        return {}


def _place(resource: bytes | None, rest: bytes | None) -> str:
    """Return what follows the resource in the path of a table."""
    if rest is None:
        return ""
    if resource != b"generations":
        return "key"
    number, slash, verb = rest.partition(b"/")
    return "key" if number and not slash else f"/{verb.decode('latin-1')}" if number else "/"


def _table_name(raw: bytes, method: str) -> str:
    name = raw.decode("latin-1")
    if "%" in name:
        name = unquote(name)
    if not _NAME.fullmatch(name):
        raise (TableNotFound if method in ("GET", "HEAD") else InvalidOperation)(
            "the name of a table in the path is not valid: it has 1 to 128 letters, digits, _, . and -, "
            "and begins with a letter or digit"
        )
    return name
