"""The audit log: rejected tokens, denied operations, administrative requests, changes of the configuration, and writes.

Its lines have the same members, and never a key or a value. They are not sampled. Callers without permission could
flood the log with rejected tokens and denied operations, so these lines are warnings, which the log limits. A metric
counts all events.
"""

import logging
from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry
from starlette.types import Scope

from ..auth import Forbidden, Unauthenticated
from ..telemetry import AUDIT_LOGGER, Counter, LogSettings
from .addresses import TrustedProxies
from .request_context import RequestContext, method_label

REJECTED, DENIED = "token rejected", "operation denied"
ADMINISTRATION, CONFIGURATION, WRITE = "administration", "configuration changed", "write"

log = logging.getLogger(AUDIT_LOGGER)


class AuditLog:
    """Logs and counts the events that `logs.audit` selects. `proxies` resolve the addresses of clients."""

    def __init__(self, settings: LogSettings, proxies: TrustedProxies, registry: CollectorRegistry) -> None:
        self._level = settings.audit
        self._proxies = proxies
        counter = Counter("tableside_audit_events", "Events of the audit log.", ("event",), registry=registry)
        events = (REJECTED, DENIED, ADMINISTRATION, CONFIGURATION, WRITE)
        self._counts = {event: counter.labels(event) for event in events}

    def request_ended(self, scope: Scope, context: RequestContext) -> None:
        """Log the events of a request that has ended."""
        succeeded = context.code is None and not context.denied
        if self._level == "none" or (succeeded and context.reads):
            return
        if succeeded and self._level != "writes" and context.detail is None and not _administers(context):
            return
        for event in _events(context):
            if event != WRITE or self._level == "writes":
                self._write(event, _members(event, context, self._proxies.client_address(scope)))

    def configuration_changed(self, settings: LogSettings, changed: Iterable[str]) -> None:
        """Log the names of changed settings, also if one of them turns the audit log on or off."""
        if (names := ", ".join(changed)) and {self._level, settings.audit} != {"none"}:
            empty = dict.fromkeys(("request_id", "client", "caller", "table", "operation"))
            self._write(CONFIGURATION, {**empty, "outcome": "ok", "operations": 0, "failed": 0, "detail": names})
        self._level = settings.audit

    def _write(self, event: str, members: dict[str, object]) -> None:
        self._counts[event].inc()
        log.log(logging.WARNING if event in (REJECTED, DENIED) else logging.INFO, event, extra=members)


def _events(context: RequestContext) -> Iterator[str]:
    """Yield the events of a request. A batch may have denied operations and others."""
    if context.code == Unauthenticated.code:
        yield REJECTED
        return
    if context.denied or context.code == Forbidden.code:
        yield DENIED
    if context.code == Forbidden.code or context.table is None:
        return
    if context.detail is not None or _administers(context):
        yield ADMINISTRATION
    elif not context.reads:
        yield WRITE


def _administers(context: RequestContext) -> bool:
    """Return whether a request changes generations or deletes many records."""
    return not context.reads and ("/generations" in context.route or context.route.endswith("/records"))


def _members(event: str, context: RequestContext, client: str | None) -> dict[str, object]:
    denied = event == DENIED and context.denied
    outcome = context.code or ("disconnected" if not context.status else "partial" if context.failed else "ok")
    return {
        "request_id": context.request_id,
        "client": client,
        "caller": context.caller,
        "table": context.table,
        "operation": f"{method_label(context.method)} {context.route or 'other'}",
        "outcome": Forbidden.code if denied else outcome,
        "operations": denied or context.operations,
        "failed": denied or context.failed,
        "detail": None if event == DENIED else context.detail,
    }
