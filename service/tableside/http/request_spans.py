"""Spans of requests, which continue the trace of the client.

A span is current while the service processes its request. Its attributes follow OpenTelemetry's conventions for HTTP
and the request's context. They exclude the path and the query, which contain keys. Probes have no span.
"""

import random
import re
from collections.abc import Callable, Sequence

from opentelemetry import context as contexts
from opentelemetry.context import Context
from opentelemetry.trace import SpanKind, Status, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.types import Scope

from ..telemetry import Attribute, TraceSettings
from .request_context import PROBES, RequestContext
from .request_observers import CLIENT_CLOSED_REQUEST, METHODS

SCOPE_KEY = "tableside.span"
"""The key in the ASGI scope of the request's span and the token that restores the previous context."""

_PARENT = re.compile(rb"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-([0-9a-f]{2})(?:-.*)?")


class RequestSpans:
    """Starts and ends the span of each sampled request.

    If the request has a `traceparent`, its sampling flag decides. Otherwise a share of the requests is sampled. This
    class decides that instead of the SDK, because the SDK creates a span for unsampled requests too, which costs
    several times as much. `chance` returns a random number below 1.
    """

    def __init__(self, tracer: Tracer, settings: TraceSettings, chance: Callable[[], float] = random.random) -> None:
        self._tracer = tracer
        self._chance = chance
        self._propagator = TraceContextTextMapPropagator()
        self.configure(settings)

    def configure(self, settings: TraceSettings) -> None:
        """Change the sampled share. The destination of traces does not change."""
        self._sample_share = settings.sample

    def start(self, scope: Scope, request: RequestContext) -> None:
        """Start a span if the request is sampled, and make it current in this task."""
        context = None if scope["path"] in PROBES else self._context(scope["headers"])
        if context is not None:
            method = request.method if request.method in METHODS else "HTTP"
            span = self._tracer.start_span(method, context, SpanKind.SERVER)
            scope[SCOPE_KEY] = span, contexts.attach(set_span_in_context(span, context))
        elif contexts.get_current():
            # The task inherited the context of the previous request on the connection, so replace it.
            scope[SCOPE_KEY] = None, contexts.attach(Context())

    def end(self, scope: Scope, request: RequestContext) -> None:
        """End the span with the attributes and the status of the finished request."""
        if SCOPE_KEY not in scope:
            return
        span, token = scope.pop(SCOPE_KEY)
        contexts.detach(token)
        if span is not None:
            if request.route:
                span.update_name(f"{request.method} {request.route}")
            span.set_attributes(_attributes(scope, request))
            if request.status >= 500:
                span.set_status(Status(StatusCode.ERROR))
            span.end()

    def _context(self, headers: Sequence[tuple[bytes, bytes]]) -> Context | None:
        """Return the parent context of the span, empty for a new trace, or None if the request is not sampled."""
        for name, value in headers:
            if name == b"traceparent" and (parent := _PARENT.fullmatch(value)) is not None:
                return self._parent_context(headers, value) if int(parent[1], 16) & 1 else None
        return Context() if self._chance() < self._sample_share else None

    def _parent_context(self, headers: Sequence[tuple[bytes, bytes]], parent: bytes) -> Context:
        state = b",".join(value for name, value in headers if name == b"tracestate")
        carrier = {"traceparent": parent.decode(), "tracestate": state.decode("latin-1")}
        return self._propagator.extract(carrier, Context())


def _attributes(scope: Scope, request: RequestContext) -> dict[str, Attribute]:
    attributes: dict[str, Attribute] = {
        "http.request.method": request.method if request.method in METHODS else "_OTHER",
        "url.scheme": scope["scheme"],
        "network.protocol.version": scope["http_version"],
        "tableside.operations": request.operations,
        "tableside.failed": request.failed,
    }
    if scope.get("server") and scope["server"][1] is not None:
        attributes["server.address"], attributes["server.port"] = scope["server"]
    if request.route:
        attributes["http.route"] = request.route
    if request.table is not None:
        attributes["tableside.table"] = request.table
    if request.status:
        attributes["http.response.status_code"] = request.status
    if request.status >= 400 or not request.status:
        attributes["error.type"] = request.code or str(request.status or CLIENT_CLOSED_REQUEST)
    return attributes
