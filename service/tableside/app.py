"""The application: opens the catalog, closes it, installs the routes and the one error handler."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi_offline import FastAPIOffline
from prometheus_client import CollectorRegistry, Gauge, PlatformCollector, ProcessCollector
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from . import __version__, openapi
from .catalog import Catalog
from .edge import Edge, StartError
from .errors import Internal, MalformedRequest, TableError
from .routes import problem_response, routes
from .settings import Settings
from .wire.problems import MethodNotAllowed, NotFound


def create_app(settings: Settings, workers: int = 1) -> FastAPI:
    """Return the service for these settings. Its stores are opened when it starts and closed when it stops.

    `workers` is how many processes serve together, and share what a table may do in a second.
    """
    registry = CollectorRegistry()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        try:
            app.state.catalog = await Catalog.open(settings, registry, workers)
        except TableError as error:
            raise StartError(" ".join(error.detail.split())) from error
        try:
            yield
        finally:
            await app.state.catalog.close()

    app = FastAPIOffline(
        title="Tableside",
        version=__version__,
        lifespan=lifespan,
        redirect_slashes=False,
        redoc_url=None,
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    app.state.settings = settings
    app.state.registry = _with_process_metrics(registry)
    served = routes()
    app.router.routes.extend(served)
    app.add_exception_handler(HTTPException, _http_error)
    app.openapi = lambda: openapi.document(__version__)  # type: ignore[method-assign]  # FastAPI's documented way
    # Outside the framework's own layers, which are then only asked for what is not the service's.
    app.middleware_stack = Edge(app.build_middleware_stack(), served, settings.limits.in_flight_max)
    return app


def _with_process_metrics(registry: CollectorRegistry) -> CollectorRegistry:
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    build = Gauge("tableside_build_info", "The version that runs.", ["version"], registry=registry)
    build.labels(__version__).set(1)
    return registry


async def _http_error(request: Request, error: Exception) -> Response:
    """Answer what the framework refuses: mostly a path or a method that there is not."""
    assert isinstance(error, HTTPException)
    given = dict(error.headers or {})
    if error.status_code == 404:
        return problem_response(NotFound("no such path"), given)
    if error.status_code == 405:
        return problem_response(MethodNotAllowed("the path does not take this method"), given)
    if error.status_code < 500:
        return problem_response(MalformedRequest("the request cannot be read"), given)
    return problem_response(Internal("a fault of the service"), given)
