"""Counters, spans and logs, and their export. Nothing here logs a key, a value or a secret, not even at debug level.

Independent of HTTP: `http` observes requests and reports them through this package. Imports `core`.
"""

from .logs import AUDIT_LOGGER, REQUEST_LOGGER, LogSettings
from .metrics import DIRECTORY_VARIABLE, Counter, Exposition, Histogram
from .traces import Attribute, Traces, TraceSettings, current_context, wait_span

__all__ = [
    "AUDIT_LOGGER",
    "DIRECTORY_VARIABLE",
    "REQUEST_LOGGER",
    "Attribute",
    "Counter",
    "Exposition",
    "Histogram",
    "LogSettings",
    "TraceSettings",
    "Traces",
    "current_context",
    "wait_span",
]
