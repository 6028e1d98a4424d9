"""What is recorded about requests: metrics, the access log and spans.

Metrics are by route, method and status, and by caller. The log has one line for each failed request, each slow one,
and a sample of the others. Lines, labels and spans contain the route instead of the path, so never a key or a value.
"""

import logging
import random
import re
from collections.abc import Callable, Sequence

from opentelemetry import context as contexts
from opentelemetry.context import Context
from opentelemetry.trace import SpanKind, Status, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from prometheus_client import CollectorRegistry
from starlette.types import Scope

from ..auth import AuthSettings
from ..catalog import BUCKETS_S
from ..core.errors import Overloaded, Throttled
from ..telemetry import REQUEST_LOGGER, Attribute, Counter, Histogram, LogSettings, TraceSettings
from .request_context import METHODS, PROBES, RequestContext, method_label

CLIENT_CLOSED_REQUEST = "499"
"""The status of a request whose client disconnected before the response, as in nginx."""

READYZ, READYZ_FAILED = "/readyz", 503

FAILED, SLOW, SHED, SERVED = "failed request", "slow request", "shed request", "request"

_LEVELS = {FAILED: logging.ERROR, SLOW: logging.WARNING, SHED: logging.WARNING, SERVED: logging.INFO}

CALLERS_MAX = 100
"""How many callers have metrics of their own."""

SPAN_KEY = "tableside.span"
"""The key in the ASGI scope of the request's span and the token that restores the previous context."""

_PARENT = re.compile(rb"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-([0-9a-f]{2})(?:-.*)?")

log = logging.getLogger(REQUEST_LOGGER)


class RequestMetrics:
    """An observer that counts and times requests."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            "tableside_http_requests",
            "Requests by route, method and status; 499 means that the client disconnected before the response.",
            ("route", "method", "status"),
            registry=registry,
        )
        self._seconds = Histogram(
            "tableside_http_request_duration_seconds",
            "Time from the head of a request to the end of its response.",
            ("route", "method"),
            buckets=BUCKETS_S,
            registry=registry,
        )
        self._bytes_in = Counter(
            "tableside_http_request_bytes", "Bytes of request bodies.", ("route",), registry=registry
        )
        self._bytes_out = Counter(
            "tableside_http_response_bytes", "Bytes of response bodies.", ("route",), registry=registry
        )
        self._children: dict[tuple[str, str, int], tuple[Counter, Histogram, Counter, Counter]] = {}

    def request_ended(self, context: RequestContext) -> None:
        """Count the request."""
        requests, seconds, bytes_in, bytes_out = self._child(context)
        requests.inc()
        seconds.observe(context.duration_s)
        if context.bytes_in:
            bytes_in.inc(context.bytes_in)
        if context.bytes_out:
            bytes_out.inc(context.bytes_out)

    def _child(self, context: RequestContext) -> tuple[Counter, Histogram, Counter, Counter]:
        # Finding a child by its labels costs more than counting.
        if (child := self._children.get((context.route, context.method, context.status))) is None:
            method = method_label(context.method)
            route, status = context.route or "other", str(context.status) if context.status else CLIENT_CLOSED_REQUEST
            child = self._children[context.route, method, context.status] = (
                self._requests.labels(route, method, status),
                self._seconds.labels(route, method),
                self._bytes_in.labels(route),
                self._bytes_out.labels(route),
            )
        return child


class CallerMetrics:
    """An observer that counts the operations of callers: of those in the settings, and of some others.

    At most `CALLERS_MAX` callers have metrics of their own. The others are counted together.
    """

    def __init__(self, registry: CollectorRegistry, auth: AuthSettings | None) -> None:
        self._operations = Counter(
            "tableside_caller_operations",
            "Operations of a caller. A request without operations, such as a scan, counts as one.",
            ("caller",),
            registry=registry,
        )
        self._rejected = Counter(
            "tableside_caller_rejected",
            "Operations of a caller that a limit rejected: throttled (a rate) or overloaded (work in flight).",
            ("caller", "code"),
            registry=registry,
        )
        self._children: dict[str, tuple[Counter, dict[str, Counter]]] = {}
        self._others = self._labeled("other")
        for token in () if auth is None else auth.tokens:
            self._child(token.name)

    def request_ended(self, context: RequestContext) -> None:
        """Count the operations of the request."""
        if context.caller is None:
            return
        operations, rejected = self._child(context.caller)
        count = context.operations or 1
        operations.inc(count)
        failures = context.failures if context.code is None else {context.code: count}
        if failures:
            for code, counter in rejected.items():
                counter.inc(failures.get(code, 0))

    def _child(self, caller: str) -> tuple[Counter, dict[str, Counter]]:
        if (child := self._children.get(caller)) is not None:
            return child
        if len(self._children) >= CALLERS_MAX:
            return self._others
        child = self._children[caller] = self._labeled(caller)
        return child

    def _labeled(self, caller: str) -> tuple[Counter, dict[str, Counter]]:
        rejected = {code: self._rejected.labels(caller, code) for code in (Throttled.code, Overloaded.code)}
        return self._operations.labels(caller), rejected


class AccessLog:
    """An observer that logs requests.

    `chance` returns a random number below 1. It decides whether a fast and successful request is in the sample.
    """

    def __init__(self, settings: LogSettings, chance: Callable[[], float] = random.random) -> None:
        self._chance = chance
        self.configure(settings)

    def configure(self, settings: LogSettings) -> None:
        """Apply changed settings."""
        self._sample_share = settings.requests
        self._slow_s = settings.slow_s

    def request_ended(self, context: RequestContext) -> None:
        """Log the request if it failed, was slow, or is in the sample."""
        if context.status < 500 and context.duration_s < self._slow_s:
            if self._chance() < self._sample_share and context.route not in PROBES:
                self._write(SERVED, context)
        elif (kind := self._kind(context)) is not None:
            self._write(kind, context)

    def _kind(self, context: RequestContext) -> str | None:
        """Return the event to log, None for a slow probe, a failed /readyz and shed requests outside the sample."""
        if context.route == READYZ and context.status == READYZ_FAILED:
            return None  # The log has a line when a store can no longer be reached.
        if context.status < 500:
            return None if context.route in PROBES else SLOW
        if context.code != Overloaded.code:
            return FAILED
        return SHED if self._chance() < self._sample_share else None

    def _write(self, kind: str, context: RequestContext) -> None:
        fields = {
            "request_id": context.request_id,
            "method": method_label(context.method),
            "route": context.route or "other",
            "table": context.table,
            "caller": context.caller,
            "operations": context.operations,
            "failed": context.failed,
            "status": context.status or int(CLIENT_CLOSED_REQUEST),
            "code": context.code,
            "duration_ms": round(context.duration_s * 1000, 3),
            "bytes_in": context.bytes_in,
            "bytes_out": context.bytes_out,
        }
        log.log(_LEVELS[kind], kind, extra=fields)


class RequestSpans:
    """Starts and ends the span of each sampled request, which continues the trace of the client.

    A span is current while the service processes its request. Its attributes follow OpenTelemetry's conventions for
    HTTP. They exclude the path and the query, which contain keys. Probes have no span.

    If the request has a `traceparent`, its sampling flag decides. Otherwise a share of the requests is sampled. This
    class decides that instead of the SDK, because the SDK creates a span for unsampled requests too, which costs
    several times as much.
    """

    def __init__(self, tracer: Tracer, settings: TraceSettings) -> None:
        self._tracer = tracer
        self._sample_share = settings.sample
        self._propagator = TraceContextTextMapPropagator()

    def start(self, scope: Scope, request: RequestContext) -> None:
        """Start a span if the request is sampled, and make it current in this task."""
        context = None if scope["path"] in PROBES else self._context(scope["headers"])
        if context is not None:
            method = request.method if request.method in METHODS else "HTTP"
            span = self._tracer.start_span(method, context, SpanKind.SERVER)
            scope[SPAN_KEY] = span, contexts.attach(set_span_in_context(span, context))
        elif contexts.get_current():
            # The task inherited the context of the previous request on the connection, so replace it.
            scope[SPAN_KEY] = None, contexts.attach(Context())

    def end(self, scope: Scope, request: RequestContext) -> None:
        """End the span with the attributes and the status of the finished request."""
        if SPAN_KEY not in scope:
            return
        span, token = scope.pop(SPAN_KEY)
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
                if not int(parent[1], 16) & 1:
                    return None
                state = b",".join(value for name, value in headers if name == b"tracestate")
                carrier = {"traceparent": value.decode(), "tracestate": state.decode("latin-1")}
                return self._propagator.extract(carrier, Context())
        return Context() if random.random() < self._sample_share else None  # noqa: S311  # not a secret


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
