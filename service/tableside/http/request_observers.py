"""Observers of finished requests: metrics by route, method and status, and the access log.

The log has one line for each failed request, each slow one, and a sample of the others. Lines and labels contain the
route instead of the path, so never a key or a value.
"""

import logging
import random
from collections.abc import Callable

from prometheus_client import CollectorRegistry

from ..catalog import BUCKETS_S
from ..core.errors import Overloaded
from ..telemetry import REQUEST_LOGGER, Counter, EventLogLimiter, Histogram, LogSettings
from .request_context import PROBES, RequestContext

CLIENT_CLOSED_REQUEST = "499"
"""The status of a request whose client disconnected before the response, as in nginx."""

METHODS = frozenset({"GET", "HEAD", "PUT", "PATCH", "DELETE", "POST", "OPTIONS"})

LINES_PER_S_MAX = 20
"""The limit of log lines per second for failed requests. It applies separately to slow and to shed requests."""

READYZ, READYZ_FAILED = "/readyz", 503

FAILED, SLOW, SHED, SERVED = "failed request", "slow request", "shed request", "request"

_LEVELS = {FAILED: logging.ERROR, SLOW: logging.WARNING, SHED: logging.WARNING, SERVED: logging.INFO}

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


class AccessLog:
    """An observer that logs requests.

    `chance` returns a random number below 1. It decides whether a fast and successful request is in the sample.
    """

    def __init__(self, settings: LogSettings, chance: Callable[[], float] = random.random) -> None:
        self._chance = chance
        self._line_limit = EventLogLimiter(LINES_PER_S_MAX, log)
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
        elif (kind := self._kind(context)) is not None and self._line_limit.allow(kind):
            self._write(kind, context)

    def close(self) -> None:
        """Log how many lines were suppressed last."""
        self._line_limit.log_suppressed()

    def _kind(self, context: RequestContext) -> str | None:
        """Return the event to log, None for a slow probe, a failed /readyz and shed requests outside the sample."""
        if context.route == READYZ and context.status == READYZ_FAILED:
            return None  # `readiness` logs the changes.
        if context.status < 500:
            return None if context.route in PROBES else SLOW
        if context.code != Overloaded.code:
            return FAILED
        return SHED if self._chance() < self._sample_share else None

    def _write(self, kind: str, context: RequestContext) -> None:
        log.log(_LEVELS[kind], kind, extra=_fields(context))


def _fields(context: RequestContext) -> dict[str, object]:
    return {
        "request_id": context.request_id,
        "method": context.method if context.method in METHODS else "other",
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
