"""The endpoints that describe tables and the service itself: table descriptions, probes and metrics."""

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from ...auth import Forbidden
from ...core import StoreUnavailable
from ...core.errors import Overloaded
from ..readiness import ReadinessLog
from ..request_context import DRAINING_KEY, caller_of
from ..responses import json_response, problem_response
from ..wire import json_batch, request_headers
from ..wire.table_description import describe
from .endpoint import ServiceRequest, TableRequest, check_any, get_route, table_route

JSON = json_batch.MEDIA_TYPE


def routes() -> list[Route]:
    """Return the routes of table descriptions, probes and metrics."""
    return [
        table_route("/v1/tables/{table}", check_any, GET=describe_table),
        get_route("/v1/tables", list_tables),
        get_route("/", redirect_to_page),
        get_route("/livez", livez),
        get_route("/readyz", readyz),
        get_route("/metrics", metrics),
    ]


async def list_tables(request: ServiceRequest) -> Response:
    """Describe every table that the caller has a permission for, without the policies that are defaults."""
    request_headers.query_parameters(request, ())
    request_headers.check_accepts(request, JSON)
    limits, may_any = request.limits, caller_of(request.scope).may_any
    entries = [entry for entry in request.catalog.entries() if may_any(entry.spec.name)]
    return json_response({"tables": [describe(entry, limits, defaults=False) for entry in entries]})


async def describe_table(request: TableRequest) -> Response:
    """Describe one table."""
    request_headers.query_parameters(request, ())
    request_headers.check_accepts(request, JSON)
    await request.catalog.table(request.table_name)
    entry = request.catalog.entry(request.table_name)
    return json_response(describe(entry, request.limits))


async def redirect_to_page(request: ServiceRequest) -> Response:
    """Redirect a browser that opens the service's address: to the console, or to /docs if the console is disabled."""
    page = "/console" if request.app.state.settings.console.enabled else "/docs"
    return RedirectResponse(request.scope.get("root_path", "") + page)


async def livez(request: ServiceRequest) -> Response:
    """Respond that the process runs, without a call to any store."""
    return json_response({"status": "alive"})


async def readyz(request: ServiceRequest) -> Response:
    """Respond whether the service can process operations, and which stores it can reach."""
    reached = await request.catalog.ping()
    stores = {name: {"ready": error is None, "detail": error and error.detail} for name, error in reached.items()}
    if request.scope.get("state", {}).get(DRAINING_KEY):
        return problem_response(Overloaded("the service is shutting down"), members={"stores": stores})
    readiness: ReadinessLog = request.app.state.readiness
    if readiness.checked(reached):
        return json_response({"status": "ready", "stores": stores})
    error = StoreUnavailable("no store can be reached", retry_after_s=2)
    return problem_response(error, members={"stores": stores})


async def metrics(request: ServiceRequest) -> Response:
    """Respond with the metrics in Prometheus' text format. Raise Forbidden if only admins may read them."""
    caller, auth = caller_of(request.scope), request.app.state.settings.auth
    if auth is not None and auth.metrics == "admin" and not caller.admin:
        raise Forbidden(f"the metrics require an admin, and the caller {caller.name!r} is not an admin")
    return Response(await request.app.state.exposition.text_in_thread(), headers={"Content-Type": CONTENT_TYPE_LATEST})
