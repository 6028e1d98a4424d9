"""A span for each request that is traced, which continues the trace of its caller; current while it is served.

Its attributes are those of OpenTelemetry's conventions for HTTP, and what `notes` hold. The path and the query are
left out, which hold keys. Probes have none.
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
from .access_log import PROBES
from .request_context import Notes
from .request_metrics import METHODS, NOBODY

SCOPE_KEY = "tableside.span"
"""Where in the ASGI scope a request's span is, and what was current before."""

_PARENT = re.compile(rb"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-([0-9a-f]{2})(?:-.*)?")


class RequestSpans:
    """An observer that begins a span with a request, and ends it with it.

    A caller's trace is sampled where the caller says so. Of the others a share is: that is decided here and not by the
    SDK, for which a request that is not traced is already a span that costs several times as much. `chance` is asked
    for a number below 1.
    """

    def __init__(self, tracer: Tracer, settings: TraceSettings, chance: Callable[[], float] = random.random) -> None:
        self._tracer = tracer
        self._chance = chance
        self._propagator = TraceContextTextMapPropagator()
        self.configure(settings)

    def configure(self, settings: TraceSettings) -> None:
        """Sample such a share from now on; where traces go stays as it is."""
        self._share = settings.sample

    def began(self, scope: Scope, notes: Notes) -> None:
        """Begin the span, if there is to be one, and make it current in this task."""
        context = None if scope["path"] in PROBES else self._sampled(scope["headers"])
        if context is not None:
            method = notes.method if notes.method in METHODS else "HTTP"
            span = self._tracer.start_span(method, context, SpanKind.SERVER)
            scope[SCOPE_KEY] = span, contexts.attach(set_span_in_context(span, context))
        elif contexts.get_current():
            # The task began within that of the request before it on the connection, whose span is none of this one's.
            scope[SCOPE_KEY] = None, contexts.attach(Context())

    def ended(self, scope: Scope, notes: Notes) -> None:
        """End the span with what became of the request."""
        if SCOPE_KEY not in scope:
            return
        span, token = scope.pop(SCOPE_KEY)
        contexts.detach(token)
        if span is not None:
            if notes.route:
                span.update_name(f"{notes.method} {notes.route}")
            span.set_attributes(_attributes(scope, notes))
            if notes.status >= 500:
                span.set_status(Status(StatusCode.ERROR))
            span.end()

    def _sampled(self, headers: Sequence[tuple[bytes, bytes]]) -> Context | None:
        """Return the context that the span continues, empty if it begins a trace; None if there is to be no span."""
        for name, value in headers:
            if name == b"traceparent" and (parent := _PARENT.fullmatch(value)) is not None:
                return self._continued(headers, value) if int(parent[1], 16) & 1 else None
        return Context() if self._chance() < self._share else None

    def _continued(self, headers: Sequence[tuple[bytes, bytes]], parent: bytes) -> Context:
        state = b",".join(value for name, value in headers if name == b"tracestate")
        carrier = {"traceparent": parent.decode(), "tracestate": state.decode("latin-1")}
        return self._propagator.extract(carrier, Context())


def _attributes(scope: Scope, notes: Notes) -> dict[str, Attribute]:
    attributes: dict[str, Attribute] = {
        "http.request.method": notes.method if notes.method in METHODS else "_OTHER",
        "url.scheme": scope["scheme"],
        "network.protocol.version": scope["http_version"],
        "tableside.operations": notes.operations,
        "tableside.failed": notes.failed,
    }
    if scope.get("server") and scope["server"][1] is not None:
        attributes["server.address"], attributes["server.port"] = scope["server"]
    if notes.route:
        attributes["http.route"] = notes.route
    if notes.table is not None:
        attributes["tableside.table"] = notes.table
    if notes.status:
        attributes["http.response.status_code"] = notes.status
    if notes.status >= 400 or not notes.status:
        attributes["error.type"] = notes.code or str(notes.status or NOBODY)
    return attributes
