"""Counters, spans and logs, and their export. Nothing here logs a key, a value or a secret, not even at debug level.

Independent of HTTP: `http` observes requests and reports them through this package. Imports `core`. An import with `as`
exports its name.
"""

from .logs import AUDIT_LOGGER as AUDIT_LOGGER, REQUEST_LOGGER as REQUEST_LOGGER, LogSettings as LogSettings
from .metrics import (
    DIRECTORY_VARIABLE as DIRECTORY_VARIABLE,
    Counter as Counter,
    Exposition as Exposition,
    Histogram as Histogram,
)
from .traces import (
    Attribute as Attribute,
    Traces as Traces,
    TraceSettings as TraceSettings,
    current_context as current_context,
    wait_span as wait_span,
)
