"""The application: opens the catalog, closes it, installs the routes and the one error handler."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
from fastapi import FastAPI
from fastapi_offline import FastAPIOffline
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from . import __version__
from .auth import Auth
from .catalog import AdmissionMetrics as InFlightMetrics
from .catalog import Catalog, Environment, InFlight, Reloader, StackMetrics
from .core import Internal, MalformedRequest, TableError
from .http import (
    AccessLog,
    AllowedHosts,
    Console,
    MethodNotAllowed,
    NotFound,
    Observer,
    RequestMetrics,
    RequestMiddleware,
    RequestSpans,
    StartError,
    openapi,
    problem_response,
    routes,
)
from .http.console import routes as console_routes
from .settings import Fault, LimitSettings, Settings, SettingsError
from .telemetry import Exposition, logs, trace_export

SAMPLE_S = 1.0
"""How often each of several workers shows the others what it has counted, and sets its gauges."""


def create_app(
    settings: Settings,
    workers: int = 1,
    file: Path | None = None,
    accepted: Path | None = None,
    *,
    local: bool = False,
) -> FastAPI:
    """Return the service for these settings. Its stores are opened when it starts and closed when it stops.

    `workers` is how many processes serve together, and share what a table may do in a second. `file` is where the
    settings are from: when it changes, what can be changed is, while it serves. `accepted` is where it is kept as
    it was last applied, for workers that join later. A `local` service is only asked by this machine's own names.
    """
    exposition = Exposition()
    in_flight = _in_flight(settings.limits, exposition)
    auth = Auth(settings.auth, exposition.registry)
    hosts = AllowedHosts(settings.hosts, local=local)
    access_log = AccessLog(settings.logs)
    pages = Console(exposition.collect) if settings.console.enabled else None
    environment = Environment(StackMetrics(exposition.registry), workers, in_flight.operations)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        try:
            tracing = trace_export.open_tracing(settings.traces, os.environ)
            if tracing is not None:
                middleware.spans = RequestSpans(tracing.tracer, settings.traces)
            within = msgspec.structs.replace(environment, traces=tracing and tracing.traces)
            catalog = app.state.catalog = await Catalog.open(settings, within)
        except TableError as error:
            raise StartError(" ".join(error.detail.split())) from error
        exposition.on_sample(catalog.sample)
        works = [_every(SAMPLE_S, exposition.sample)] if exposition.directory else []
        if file is not None:
            works.append(Reloader(file, settings, change, exposition.registry, accepted=accepted).run())
        if pages is not None:
            works.append(pages.run())
        works.append(auth.run())
        tasks = [asyncio.create_task(work) for work in works]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await app.state.catalog.close()
            access_log.close()
            if tracing is not None:
                await tracing.close()
            exposition.flush()

    async def change(changed: Settings) -> None:
        if (why := changed.workers_fault(workers)) is not None:
            raise SettingsError([Fault("", why)])
        await app.state.catalog.change(changed)
        if changed.logs != app.state.settings.logs:
            logs.configure(changed.logs)
            access_log.configure(changed.logs)
        app.state.settings = changed
        in_flight.change(**_bounds(changed.limits))
        middleware.body_bytes_max = changed.limits.body_bytes_max
        auth.change(changed.auth)
        hosts.change(changed.hosts)

    app = FastAPIOffline(
        title="Tableside",
        version=__version__,
        lifespan=lifespan,
        redirect_slashes=False,
        redoc_url=None,
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    app.state.settings = settings
    app.state.auth = auth
    app.state.exposition = exposition
    served = routes() if pages is None else [*routes(), *console_routes(pages)]
    app.router.routes.extend(served)
    app.add_exception_handler(HTTPException, _http_error)
    app.openapi = lambda: openapi.document(__version__)  # type: ignore[method-assign]  # FastAPI's documented way
    # Outside the framework's own layers, which are then only asked for what is not the service's.
    observers: list[Observer] = [RequestMetrics(exposition.registry), access_log]
    bytes_max = settings.limits.body_bytes_max
    inner = openapi.Guarded(app.build_middleware_stack())
    middleware = RequestMiddleware(inner, served, in_flight, auth, hosts, observers, body_bytes_max=bytes_max)
    app.middleware_stack = middleware
    return app


async def _every(seconds: float, work: Callable[[], None]) -> None:
    while True:
        work()
        await asyncio.sleep(seconds)


def _bounds(limits: LimitSettings) -> dict[str, int]:
    return {
        "requests_max": limits.in_flight_max,
        "operations_max": limits.operations_in_flight_max,
        "bytes_max": limits.bytes_in_flight_max,
    }


def _in_flight(limits: LimitSettings, exposition: Exposition) -> InFlight:
    in_flight = InFlight(InFlightMetrics(exposition.registry), **_bounds(limits))
    exposition.on_sample(in_flight.sample)
    return in_flight


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
