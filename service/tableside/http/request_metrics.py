"""Metrics of requests by route, method and status: counts, durations and bytes."""

from prometheus_client import CollectorRegistry

from ..catalog import BUCKETS_S
from ..telemetry import Counter, Histogram
from .request_context import RequestContext

CLIENT_CLOSED_REQUEST = "499"
"""The status of a request whose client disconnected before the response, as in nginx."""

METHODS = frozenset({"GET", "HEAD", "PUT", "PATCH", "DELETE", "POST", "OPTIONS"})


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
        method = context.method if context.method in METHODS else "other"
        if (child := self._children.get((context.route, method, context.status))) is None:
            route, status = context.route or "other", str(context.status) if context.status else CLIENT_CLOSED_REQUEST
            child = self._children[context.route, method, context.status] = (
                self._requests.labels(route, method, status),
                self._seconds.labels(route, method),
                self._bytes_in.labels(route),
                self._bytes_out.labels(route),
            )
        return child
