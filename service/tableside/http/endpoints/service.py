"""The endpoints that describe tables and the service itself: table descriptions, probes, metrics and documentation."""

import base64
import hashlib
import re
from functools import cache
from importlib.resources import files
from typing import Any

from fastapi import Depends
from fastapi.openapi.docs import get_swagger_ui_html
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import RedirectResponse, Response

from ...auth import Forbidden
from ...catalog import CatalogEntry
from ...core import JsonObject, StoreUnavailable, run_in_thread
from ...core.errors import Overloaded
from ...settings import LimitSettings
from ..request_context import DRAINING_KEY
from ..responses import ProblemResponse, json_response
from ..wire.answers import JSON
from ..wire.problems import NotFound
from .document import DESCRIPTION_ERRORS, errors, response
from .models import Liveness, Readiness, Table, Tables
from .parameters import TableName
from .routing import ServiceRequest, check_any, new_router

PUBLIC: dict[str, Any] = {"security": []}
"""Marks an operation that requires no token."""

_FILES = {"swagger-ui-bundle.js": "text/javascript", "swagger-ui.css": "text/css", "favicon.png": "image/png"}
"""The files of the page at /docs, from a package that contains them, and their media types."""

_LIMITS = {
    *("operations_max", "body_bytes_max", "response_bytes_max"),
    *("in_flight_max", "operations_in_flight_max", "bytes_in_flight_max"),
}
_NO_POLICIES = {"store", "name", "key", "create"}
"""The settings of a table that are no policies."""

tables, router = new_router("tables"), new_router("service")


@tables.get(
    "/v1/tables",
    responses={
        200: response(
            "The tables, by name. `policies` has only settings that differ from their defaults.", model=Tables
        ),
        **errors(*DESCRIPTION_ERRORS),
    },
)
async def list_tables(request: ServiceRequest) -> Response:
    """List the tables."""
    request.check_accepts()
    limits, may_any = request.limits, request.caller.may_any
    entries = [entry for entry in request.catalog.entries() if may_any(entry.spec.name)]
    return json_response({"tables": [describe(entry, limits, defaults=False) for entry in entries]})


@tables.get(
    "/v1/tables/{table}",
    dependencies=[Depends(check_any)],
    responses={
        200: response("The table.", model=Table),
        **errors(*DESCRIPTION_ERRORS, "table_not_found", "invalid_operation", "unsupported", "store_unavailable"),
    },
)
async def describe_table(request: ServiceRequest, table: TableName) -> Response:
    """Describe a table."""
    request.check_accepts()
    await request.catalog.table(table)
    return json_response(describe(request.catalog.entry(table), request.limits))


def describe(entry: CatalogEntry, limits: LimitSettings, *, defaults: bool = True) -> JsonObject:
    """Return a table's description, with all its policies or, without `defaults`, only settings that differ from them.

    `capabilities` is empty until the table was opened for the first time.
    """
    spec, generations = entry.spec, entry.settings.generations
    has = None if entry.table is None else entry.table.capabilities
    return {
        **({"partitions": spec.partitions} if spec.partitions else {}),
        **({"generation": spec.generation} if generations and not spec.partitions else {}),
        "name": spec.name,
        "store": {"name": entry.store.name, "kind": entry.store.kind},
        "key": [{"name": field.name, "type": field.type} for field in spec.key.fields],
        "capabilities": {} if has is None else {**has.by_name(), "generations": has.generations and generations},
        "limits": {**limits.model_dump(include=_LIMITS), "value_bytes_max": spec.value_bytes_max},
        "policies": entry.settings.model_dump(exclude=_NO_POLICIES, exclude_defaults=not defaults),
    }


@router.get("/livez", openapi_extra=PUBLIC, responses={200: response("The process runs.", model=Liveness)})
async def check_liveness(request: ServiceRequest) -> Response:
    """Check whether the process runs, without checking stores."""
    return json_response({"status": "alive"})


@router.get(
    "/readyz",
    openapi_extra=PUBLIC,
    responses={
        200: response("The service can process operations.", model=Readiness),
        **errors("store_unavailable", "overloaded"),
    },
)
async def check_readiness(request: ServiceRequest) -> Response:
    """Check whether the service can process operations."""
    reached = await request.catalog.reachability.check()
    stores = {name: {"ready": error is None, "detail": error and error.detail} for name, error in reached.items()}
    if request.scope.get("state", {}).get(DRAINING_KEY):
        return ProblemResponse(Overloaded("the service is shutting down"), members={"stores": stores})
    if request.catalog.can_answer(reached):
        return json_response({"status": "ready", "stores": stores})
    error = StoreUnavailable("no store can be reached, and no table has a cache", retry_after_s=2)
    return ProblemResponse(error, members={"stores": stores})


@router.get(
    "/metrics",
    responses={
        200: response("All metrics.", content={"text/plain": {"schema": {"type": "string"}}}),
        **errors("unauthenticated", "forbidden"),
    },
)
async def get_metrics(request: ServiceRequest) -> Response:
    """Get the metrics in Prometheus' text format."""
    caller, auth = request.caller, request.app.state.settings.auth
    if auth is not None and auth.metrics == "admin" and not caller.admin:
        raise Forbidden(f"the metrics require an admin, and the caller {caller.name!r} is not an admin")
    return Response(await request.app.state.exposition.text_in_thread(), headers={"Content-Type": CONTENT_TYPE_LATEST})


@router.get(
    "/openapi.json",
    openapi_extra=PUBLIC,
    responses={
        200: response(
            "An OpenAPI 3.1 document.", content={JSON: {"schema": {"type": "object", "required": ["openapi"]}}}
        ),
        **errors("overloaded"),
    },
)
async def get_openapi(request: ServiceRequest) -> Response:
    """Get this document."""
    root, document = request.scope.get("root_path", ""), await run_in_thread(request.app.openapi)
    return json_response(document | ({"servers": [{"url": root}]} if root else {}))


@router.get(
    "/docs",
    openapi_extra=PUBLIC,
    responses={200: response("A page.", content={"text/html": {"schema": {"type": "string"}}}), **errors("overloaded")},
)
async def get_docs(request: ServiceRequest) -> Response:
    """Get a page that shows this document and sends requests, and works without a network."""
    root = request.scope.get("root_path", "")
    page = get_swagger_ui_html(
        openapi_url=f"{root}/openapi.json",
        title="Tableside - Swagger UI",
        swagger_js_url=f"{root}/static-offline-docs/swagger-ui-bundle.js",
        swagger_css_url=f"{root}/static-offline-docs/swagger-ui.css",
        swagger_favicon_url=f"{root}/static-offline-docs/favicon.png",
    )
    # Allow the inline scripts of the page, by their digests, and files of this service.
    inline = re.findall(rb"<script>(.*?)</script>", bytes(page.body), re.DOTALL)
    digests = [base64.b64encode(hashlib.sha256(script).digest()).decode() for script in inline]
    scripts = " ".join(["'self'", *(f"'sha256-{digest}'" for digest in digests)])
    page.headers["Content-Security-Policy"] = (
        f"default-src 'none'; script-src {scripts}; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
        "connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
    )
    page.headers["Referrer-Policy"] = "no-referrer"
    return page


@router.get("/static-offline-docs/{file}", include_in_schema=False)
async def get_file(request: ServiceRequest, file: str) -> Response:
    """Get a file of the page at /docs."""
    if (media_type := _FILES.get(file)) is None:
        raise NotFound("no such file")
    return Response(_content(file), media_type=media_type, headers={"Cache-Control": "public, max-age=86400"})


@cache
def _content(file: str) -> bytes:
    return files("fastapi_offline").joinpath("static", file).read_bytes()


@router.get("/", include_in_schema=False)
async def redirect_to_page(request: ServiceRequest) -> Response:
    """Redirect a browser that opens the service's address: to the console, or to /docs if the console is disabled."""
    page = "/console" if request.app.state.settings.console.enabled else "/docs"
    return RedirectResponse(request.scope.get("root_path", "") + page)
