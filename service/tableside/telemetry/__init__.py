"""Counters, spans and logs, and their export. Nothing here logs a key, a value or a secret, not even at debug level.

Independent of HTTP: `http` observes requests and reports them through this package. Imports `core`.
"""

from .counters import Counter, Histogram
from .exposition import DIRECTORY_VARIABLE, Exposition
from .log_limits import EventLogLimiter
from .logs import REQUEST_LOGGER
from .settings import LogSettings, TraceSettings
from .spans import Attribute, Traces, current_context, current_link, wait_span

__all__ = [
    "DIRECTORY_VARIABLE",
    "REQUEST_LOGGER",
    "Attribute",
    "Counter",
    "EventLogLimiter",
    "Exposition",
    "Histogram",
    "LogSettings",
    "TraceSettings",
    "Traces",
    "current_context",
    "current_link",
    "wait_span",
]
