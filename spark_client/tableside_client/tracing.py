"""Trace context of requests, from OpenTelemetry or the environment. OpenTelemetry need not be installed."""

import os
import re
import sys
from collections.abc import Mapping

_PARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_STATE = re.compile(r"[\x21-\x7e][\x20-\x7e]{0,511}")


def trace_headers(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The headers `traceparent` and `tracestate`: of OpenTelemetry's current span, or of the environment.

    A job's launcher may set the variables TRACEPARENT and TRACESTATE for its executors. If there is no
    span and no valid TRACEPARENT, there are no headers.
    """
    # A program with a current span has imported this module. Other programs should not pay for the import.
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
