"""Creates the application: routes, error handler and middleware, and the lifespan that opens the catalog."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pyarrow as pa
from fastapi import FastAPI
from starlette.datastructures import State
from starlette.types import ASGIApp, Receive, Scope, Send

from . import __version__
from .auth import Auth
from .catalog import Catalog, CatalogMetrics, Environment, InFlight, Reloader, changed_settings, log_start
from .core import TableError
from .http import (
    AccessLog,
    AllowedHosts,
    AuditLog,
    CallerMetrics,
    Console,
    Observer,
    PathPrefix,
    RequestMetrics,
    RequestMiddleware,
    RequestSpans,
    Router,
    StartError,
    openapi,
    routes,
)
from .http.console import read_timed, routes as console_routes
from .settings import Fault, Settings, SettingsError
from .telemetry import Exposition, logs, traces

SAMPLE_INTERVAL_S = 1.0
"""The interval at which each worker process publishes its counters and updates its gauges."""


class ServiceState(State):
    """The settings, the metrics and the catalog as plain attributes: a lookup in `State` takes ten times as long."""

    settings: Settings
    exposition: Exposition
    catalog: Catalog
    __setattr__ = object.__setattr__  # type: ignore[assignment]  # Starlette names the parameters


class Application(FastAPI):
    """An application that passes requests to its middleware itself, without two steps of the framework."""

    middleware_stack: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Process a request, or start and stop the application."""
        if scope["type"] == "http":
            scope["app"] = self
            await self.middleware_stack(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


def create_app(
    settings: Settings, workers: int = 1, file: Path | None = None, accepted: Path | None = None, *, local: bool = False
) -> FastAPI:
    """Return the application for these settings. It opens the stores at startup and closes them at shutdown.

    `workers` is the number of worker processes, which share the rate limits of tables. `file` is the configuration
    file: the service reloads the reloadable settings when it changes. `accepted` is the file with the last applied
    configuration, for workers that start later. A `local` service accepts only host names of this machine.
    """
    exposition = Exposition()
    registry = exposition.registry
    in_flight = InFlight(registry, settings.limits)
    metrics = CatalogMetrics(registry)
    auth = Auth(settings.auth, registry)
    exposition.on_sample(in_flight.sample)
    hosts = AllowedHosts(settings.hosts, local=local)
    prefix = PathPrefix(settings.root_path, settings.trusted_proxies)
    access_log = AccessLog(settings.logs)
    audit = AuditLog(settings.logs, prefix.proxies, registry)
    pages = Console(lambda: read_timed(exposition.collect), workers) if settings.console.enabled else None

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        pa.array([None])  # imports pandas, which takes a second: the first Arrow request must not wait for that
        try:
            tracing = traces.open_tracing(settings.traces, os.environ)
            if tracing is not None:
                middleware.spans = RequestSpans(tracing.tracer, settings.traces)
            environment = Environment(metrics, workers, in_flight, tracing)
            catalog = app.state.catalog = await Catalog.open(settings, environment)
        except TableError as error:
            raise StartError(" ".join(error.detail.split())) from error
        log_start(settings, [entry.spec.name for entry in catalog.entries()])
        exposition.on_sample(catalog.sample)
        background_tasks = [_run_every(SAMPLE_INTERVAL_S, exposition.sample)] if exposition.directory else []
        if file is not None:
            background_tasks.append(Reloader(file, settings, change, registry, accepted=accepted).run())
        if pages is not None:
            background_tasks.append(pages.run())
        background_tasks += [auth.run(), catalog.follow_generations(), catalog.reachability.run()]
        tasks = [asyncio.create_task(work) for work in background_tasks]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await app.state.catalog.close()
            if tracing is not None:
                await tracing.close()
            exposition.flush()

    async def change(changed: Settings) -> None:
        if (fault := changed.workers_fault(workers)) is not None:
            raise SettingsError([Fault("", fault)])
        await app.state.catalog.change(changed)
        if changed.logs != app.state.settings.logs:
            logs.configure(changed.logs)
            access_log.configure(changed.logs)
        audit.configuration_changed(changed.logs, changed_settings(app.state.settings, changed))
        app.state.settings = changed
        in_flight.change(changed.limits)
        middleware.body_bytes_max = changed.limits.body_bytes_max
        auth.change(changed.auth)
        hosts.change(changed.hosts)
        prefix.change(changed.root_path, changed.trusted_proxies)

    app = Application(
        title="Tableside",
        version=__version__,
        lifespan=lifespan,
        routes=[*routes(), *([] if pages is None else console_routes(pages))],
        openapi_url=None,  # The service has an endpoint for its document.
        docs_url=None,
        redoc_url=None,
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    app.state = ServiceState()
    app.state.settings, app.state.exposition = settings, exposition
    app.openapi = partial(openapi, __version__)  # type: ignore[method-assign]  # FastAPI's documented way
    observers: list[Observer] = [RequestMetrics(registry), CallerMetrics(registry, settings.auth), access_log]
    bytes_max = settings.limits.body_bytes_max
    app.middleware_stack = middleware = RequestMiddleware(
        app.router, Router(app.routes), in_flight, auth, hosts, prefix, audit, observers, body_bytes_max=bytes_max
    )
    return app


async def _run_every(seconds: float, work: Callable[[], None]) -> None:
    while True:
        work()
        await asyncio.sleep(seconds)
