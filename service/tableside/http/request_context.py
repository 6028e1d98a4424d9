"""The facts of one request. Those that its log line, span and metrics show never include a key or a value.

The server and the application exchange the rest through the ASGI scope and the lifespan state.
"""

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import msgspec
from starlette.types import Scope

from ..auth import UNRESTRICTED, Caller
from ..catalog import Reservation
from ..core import TableError

SCOPE_KEY = "tableside"
"""The key of the request's context in the ASGI scope."""

IN_FLIGHT_KEY = "tableside.in_flight"
"""The key of the limits on the work in flight in the lifespan state."""

BODY_BYTES_MAX_KEY = "tableside.body_bytes_max"
"""The key of a function in the lifespan state that returns the maximum size of a body."""

DRAINING_KEY = "tableside.draining"
"""The key in the lifespan state that the server sets while it shuts down."""

PROBES = frozenset({"/livez", "/readyz", "/metrics"})
"""Paths that are never failures. They are requested all the time, so the log shows them only when they fail."""

METHODS = frozenset({"GET", "HEAD", "PUT", "PATCH", "DELETE", "POST", "OPTIONS"})


def method_label(method: str) -> str:
    """Return a method for the log and metrics: `other` instead of a text that a client invented."""
    return method if method in METHODS else "other"


class RequestContext(msgspec.Struct):
    """One request. Its fields are filled in while the service processes it.

    `headers` are by name in lower case. Repeated ones are joined by commas. `path` are the parameters in the path: the
    table's name, and the key's segments if it has a key, for example.
    `permissions` are those of the caller, and `reservation` is its share of the limits.

    `route` is the declared path, with `{table}` and `{key:path}`, or empty if no route matches. `status` is 0 if the
    client disconnected before the response. `reads` is true if the request changes nothing, so that the service may
    abandon it when the client disconnects. `disconnected` means that the server has cancelled it therefore.
    `duration_s` is set at the end.

    `failures` counts the failed operations of a batch by code.

    For the audit log, `denied` is the number of operations in a batch without permission. `detail` is the reason for a
    failures token. Endpoints set it to what the request does if that is administrative.
    """

    request_id: str
    method: str
    headers: Mapping[bytes, bytes] = {}
    started_at: float = msgspec.field(default_factory=time.perf_counter)
    route: str = ""
    table: str | None = None
    caller: str | None = None
    operations: int = 0
    failed: int = 0
    failures: Mapping[str, int] = {}
    status: int = 0
    code: str | None = None
    bytes_in: int = 0
    bytes_out: int = 0
    reads: bool = False
    disconnected: bool = False
    denied: int = 0
    detail: str | None = None
    duration_s: float = 0.0
    path: tuple[Any, ...] = ()
    permissions: Caller = UNRESTRICTED
    reservation: Reservation | None = None

    def count_failed(self, errors: Iterable[TableError]) -> None:
        """Count the failed operations of a batch."""
        self.failures = counts = Counter(error.code for error in errors)
        self.failed = counts.total()


def headers_by_name(headers: Sequence[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Return the values of headers by their names, which are in lower case. Repeated headers are joined by commas."""
    found = dict(headers)
    if len(found) < len(headers):
        found.clear()
        for name, value in headers:
            found[name] = b"%b, %b" % (found[name], value) if name in found else value
    return found


class Observer(Protocol):
    """Receives every request when it has ended, in the task that served it."""

    def request_ended(self, context: RequestContext) -> None:
        """Process a finished request."""
        ...


def context_of(scope: Scope) -> RequestContext:
    """Return the context of a request."""
    context: RequestContext = scope[SCOPE_KEY]
    return context
