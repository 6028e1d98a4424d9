"""Counts requests and bytes, and times requests, by route; never by path."""

from prometheus_client import CollectorRegistry
from starlette.types import Scope

from ..catalog import BUCKETS_S
from ..telemetry import Counter, Histogram
from .request_context import Notes

NOBODY = "499"
"""As a status: the caller hung up before the answer."""

METHODS = frozenset({"GET", "HEAD", "PUT", "PATCH", "DELETE", "POST", "OPTIONS"})


class HttpMetrics:
    """An observer that counts."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            "tableside_http_requests",
            "Requests by route, method and status; 499 is that the caller hung up before the answer.",
            ("route", "method", "status"),
            registry=registry,
        )
        self._seconds = Histogram(
            "tableside_http_request_duration_seconds",
            "Time from the head of a request to the end of its answer.",
            ("route", "method"),
            buckets=BUCKETS_S,
            registry=registry,
        )
        self._bytes_in = Counter(
            "tableside_http_request_bytes", "Bytes of requests' bodies.", ("route",), registry=registry
        )
        self._bytes_out = Counter(
            "tableside_http_response_bytes", "Bytes of answers' bodies.", ("route",), registry=registry
        )
        self._children: dict[tuple[str, str, int], tuple[Counter, Histogram, Counter, Counter]] = {}

    def began(self, scope: Scope, notes: Notes) -> None:
        """Take note of nothing."""

    def ended(self, scope: Scope, notes: Notes) -> None:
        """Count the request."""
        requests, seconds, bytes_in, bytes_out = self._child(notes)
        requests.inc()
        seconds.observe(notes.seconds)
        if notes.bytes_in:
            bytes_in.inc(notes.bytes_in)
        if notes.bytes_out:
            bytes_out.inc(notes.bytes_out)

    def _child(self, notes: Notes) -> tuple[Counter, Histogram, Counter, Counter]:
        # Looking a child up by its labels costs more than counting.
        method = notes.method if notes.method in METHODS else "other"
        if (child := self._children.get((notes.route, method, notes.status))) is None:
            route, status = notes.route or "other", str(notes.status) if notes.status else NOBODY
            child = self._children[notes.route, method, notes.status] = (
                self._requests.labels(route, method, status),
                self._seconds.labels(route, method),
                self._bytes_in.labels(route),
                self._bytes_out.labels(route),
            )
        return child
