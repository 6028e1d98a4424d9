"""What is refused before anything is made of it: a request for which there is no room, told in one piece.

A refusal has to cost a small part of what it refuses, or refusing is all that is done: it passes none of the layers
that requests pass, and is counted, but neither logged nor traced. Knows nothing of connections.
"""

import random
import re
from collections.abc import Sequence

from starlette.types import Scope

from ..catalog import InFlight, InFlightLimit
from ..core.errors import Overloaded
from .wire import problems

PROBES = frozenset({"/livez", "/readyz", "/metrics"})
"""What is let in always."""

REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,128}")

RETRY_AFTER_S = 1

_SCOPE = "tableside.door"
_PROBES = frozenset(path.encode() for path in PROBES)


class Door:
    """Says whether there is room for a request."""

    def __init__(self, in_flight: InFlight) -> None:
        self._requests = in_flight.requests
        self._operations = in_flight.operations
        self._bodies = {bound: _body(bound) for bound in (self._requests, self._operations)}

    def refusal(self, url: bytes) -> bytes | None:
        """Return the body that refuses a request, None if there is room for it."""
        requests, operations = self._requests, self._operations
        if requests.in_flight < requests.maximum and operations.in_flight < operations.maximum:
            return None
        if url.partition(b"?")[0] in _PROBES:
            return None
        bound = requests if requests.in_flight >= requests.maximum else operations
        bound.shed()
        return self._bodies[bound]


def install(scope: Scope, door: Door) -> None:
    """Give the door to the server's connections, with the scope of the application's life."""
    if "state" in scope:
        scope["state"][_SCOPE] = door


def installed(state: dict[str, object]) -> Door | None:
    """Return the door, of what the server gives each connection."""
    door = state.get(_SCOPE)
    assert door is None or isinstance(door, Door)
    return door


def headers(
    request_headers: Sequence[tuple[bytes, bytes]], default_headers: Sequence[tuple[bytes, bytes]]
) -> list[tuple[bytes, bytes]]:
    """Return the headers of the response to a request with these headers, without those of every problem response."""
    new_id = request_id(request_headers) or b"%032x" % random.getrandbits(128)
    return [*default_headers, (b"retry-after", b"%d" % RETRY_AFTER_S), (b"x-request-id", new_id)]


def request_id(headers: Sequence[tuple[bytes, bytes]]) -> bytes | None:
    """Return the id that the caller has given, if it can be one."""
    for name, value in headers:
        if name == b"x-request-id" and REQUEST_ID.fullmatch(value):
            return value
    return None


def _body(bound: InFlightLimit) -> bytes:
    detail = f"as many {bound.what} are in flight as may be"
    return problems.encode(Overloaded(detail, retry_after_s=RETRY_AFTER_S))
