"""The access log: one line for each failed request, each slow one, and a sample of the others.

A line contains fields of the request's context and the route instead of the path, so never a key or a value.
"""

import logging
import random
from collections.abc import Callable

from ..core.errors import Overloaded
from ..telemetry import REQUEST_LOGGER, EventLogLimiter, LogSettings
from .request_context import PROBES, RequestContext
from .request_metrics import CLIENT_CLOSED_REQUEST, METHODS

LINES_PER_S_MAX = 20
"""The limit of log lines per second for failed requests; it applies separately to slow and to shed requests."""

READYZ, READYZ_FAILED = "/readyz", 503

FAILED, SLOW, SHED, SERVED = "failed request", "slow request", "shed request", "request"

_LEVELS = {FAILED: logging.ERROR, SLOW: logging.WARNING, SHED: logging.WARNING, SERVED: logging.INFO}

log = logging.getLogger(REQUEST_LOGGER)


class AccessLog:
    """An observer that logs requests.

    `chance` returns a random number below 1; it decides whether a fast and successful request is in the sample.
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
