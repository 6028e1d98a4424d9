"""A line in the log for each request that is worth one: what failed, what was slow, and a share of the others.

Of a request it says what `notes` hold, which is neither a key nor a value, and the route instead of the path.
"""

import logging
import random
from collections.abc import Callable

from starlette.types import Scope

from ..core.errors import Overloaded
from ..telemetry import REQUEST_LOGGER, Allowance, LogSettings
from .request_context import Notes
from .request_metrics import METHODS, NOBODY

PROBES = frozenset({"/livez", "/readyz", "/metrics"})
"""Routes that are asked all the time, and told of only when they fail."""

LINES_PER_S_MAX = 20
"""How many requests that failed are logged in a second; likewise of those that were slow, and of those shed."""

FAILED, SLOW, SHED, SERVED = "failed request", "slow request", "shed request", "request"

_LEVELS = {FAILED: logging.ERROR, SLOW: logging.WARNING, SHED: logging.WARNING, SERVED: logging.INFO}

log = logging.getLogger(REQUEST_LOGGER)


class RequestLog:
    """An observer that logs. `chance` is asked for a number below 1 for each request that need not be logged."""

    def __init__(self, settings: LogSettings, chance: Callable[[], float] = random.random) -> None:
        self._chance = chance
        self._allowance = Allowance(LINES_PER_S_MAX, log)
        self.configure(settings)

    def configure(self, settings: LogSettings) -> None:
        """Choose what is logged by these settings from now on."""
        self._share = settings.requests
        self._slow_s = settings.slow_s

    def began(self, scope: Scope, notes: Notes) -> None:
        """Take note of nothing."""

    def ended(self, scope: Scope, notes: Notes) -> None:
        """Log the request, if it is to be logged."""
        if notes.status < 500 and notes.seconds < self._slow_s:
            if self._chance() < self._share and notes.route not in PROBES:
                self._write(SERVED, notes)
        elif (kind := self._kind(notes)) is not None and self._allowance.take(kind):
            self._write(kind, notes)

    def close(self) -> None:
        """Say what was left out last."""
        self._allowance.renew()

    def _kind(self, notes: Notes) -> str | None:
        """Return what to call a request that failed, or was slow; None where it is one of many that were shed."""
        if notes.status < 500:
            return None if notes.route in PROBES else SLOW
        if notes.code != Overloaded.code:
            return FAILED
        return SHED if self._chance() < self._share else None

    def _write(self, kind: str, notes: Notes) -> None:
        log.log(_LEVELS[kind], kind, extra=_fields(notes))


def _fields(notes: Notes) -> dict[str, object]:
    return {
        "request_id": notes.request_id,
        "method": notes.method if notes.method in METHODS else "other",
        "route": notes.route or "other",
        "table": notes.table,
        "caller": notes.caller,
        "operations": notes.operations,
        "failed": notes.failed,
        "status": notes.status or int(NOBODY),
        "code": notes.code,
        "duration_ms": round(notes.seconds * 1000, 3),
        "bytes_in": notes.bytes_in,
        "bytes_out": notes.bytes_out,
    }
