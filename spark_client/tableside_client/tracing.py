"""Which trace a request belongs to, where the executor has one. Needs nothing to be installed."""

import os
import re
import sys
from collections.abc import Mapping

_PARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_STATE = re.compile(r"[\x21-\x7e][\x20-\x7e]{0,511}")


def trace_headers(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The headers that let the service continue a trace: of OpenTelemetry's current span, or of TRACEPARENT.

    The variables TRACEPARENT and TRACESTATE are what a job's launcher may have set for the executor. Where there is
    neither, or what stands there is not what it should be, there are no headers.
    """
    # Whoever has a span has imported this; nobody else is to pay for it.
    if "opentelemetry.trace" in sys.modules and (current := _current()):
        return current
    parent, state = environment.get("TRACEPARENT", ""), environment.get("TRACESTATE", "")
    if not _PARENT.fullmatch(parent):
        return {}
    return {"traceparent": parent} | ({"tracestate": state} if _STATE.fullmatch(state) else {})


def _current() -> dict[str, str]:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    headers: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(headers)
    return headers
