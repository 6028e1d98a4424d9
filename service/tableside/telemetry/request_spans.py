"""A span for each request, which continues the trace of its caller; current while the request is served.

Its attributes are those of OpenTelemetry's conventions for HTTP, and what `notes` hold. The path and the query are
left out, which hold keys. Probes have none.
"""

from opentelemetry import context as contexts
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.types import Scope

from ..http_metrics import METHODS, NOBODY
from ..notes import Notes
from .requests import PROBES

SCOPE_KEY = "tableside.span"
"""Where in the ASGI scope a request's span is, and what was current before."""

_TRACE_HEADERS = (b"traceparent", b"tracestate")


class RequestSpans:
    """An observer that begins a span with a request, and ends it with it."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._propagator = TraceContextTextMapPropagator()

    def began(self, scope: Scope, notes: Notes) -> None:
        """Begin the span, and make it current in this task."""
        if scope["path"] in PROBES:
            return
        # Its task may have begun within that of the request before it on the connection, whose span is none of its.
        context = self._continued(scope)
        span = self._tracer.start_span(notes.method if notes.method in METHODS else "HTTP", context, SpanKind.SERVER)
        scope[SCOPE_KEY] = span, contexts.attach(set_span_in_context(span, context))

    def ended(self, scope: Scope, notes: Notes) -> None:
        """End the span with what became of the request."""
        if (begun := scope.pop(SCOPE_KEY, None)) is None:
            return
        span, token = begun
        contexts.detach(token)
        if span.is_recording():
            _describe(span, scope, notes)
            span.end()

    def _continued(self, scope: Scope) -> Context:
        found: dict[str, str] = {}
        for name, value in scope["headers"]:
            if name in _TRACE_HEADERS:
                text = value.decode("latin-1")
                found[name.decode()] = f"{found[name.decode()]},{text}" if name.decode() in found else text
        return self._propagator.extract(found, Context()) if found else Context()


def _describe(span: Span, scope: Scope, notes: Notes) -> None:
    method = notes.method if notes.method in METHODS else "_OTHER"
    span.set_attributes(
        {
            "http.request.method": method,
            "url.scheme": scope["scheme"],
            "network.protocol.version": scope["http_version"],
            "tableside.operations": notes.operations,
            "tableside.failed": notes.failed,
        }
    )
    if scope.get("server"):
        address, port = scope["server"]
        span.set_attributes({"server.address": address} | ({"server.port": port} if port is not None else {}))
    if notes.route:
        span.update_name(f"{method} {notes.route}")
        span.set_attribute("http.route", notes.route)
    if notes.table is not None:
        span.set_attribute("tableside.table", notes.table)
    _say_how_it_ended(span, notes)


def _say_how_it_ended(span: Span, notes: Notes) -> None:
    if notes.status:
        span.set_attribute("http.response.status_code", notes.status)
    if notes.status >= 400 or not notes.status:
        span.set_attribute("error.type", notes.code or str(notes.status or NOBODY))
    if notes.status >= 500:
        span.set_status(Status(StatusCode.ERROR))
