"""Load shedding: rejects requests above the in-flight limits before they are processed.

A rejection must cost a small part of the request that it rejects; otherwise rejections alone could saturate the
service. It therefore bypasses all other layers. It is counted, but neither logged nor traced, and its response is
written in one piece.
"""

import random
import re
from collections.abc import Sequence

from starlette.types import Scope

from ..catalog import InFlight, InFlightLimit
from ..core.errors import Overloaded
from .wire import problems

PROBES = frozenset({"/livez", "/readyz", "/metrics"})
"""Paths that are never rejected. They are requested all the time, so the log shows them only when they fail."""

REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,128}")

RETRY_AFTER_S = 1

_STATE_KEY = "tableside.load_shedder"
_PROBES = frozenset(path.encode() for path in PROBES)


class LoadShedder:
    """Decides whether the in-flight limits admit another request."""

    def __init__(self, in_flight: InFlight) -> None:
        self._requests = in_flight.requests
        self._operations = in_flight.operations
        self._bodies = {limit: _body(limit) for limit in (self._requests, self._operations)}

    def rejection(self, url: bytes) -> bytes | None:
        """Return the response body that rejects a request, or None if the request is admitted."""
        requests, operations = self._requests, self._operations
        if requests.in_flight < requests.maximum and operations.in_flight < operations.maximum:
            return None
        if url.partition(b"?")[0] in _PROBES:
            return None
        limit = requests if requests.in_flight >= requests.maximum else operations
        limit.shed()
        return self._bodies[limit]


def install(scope: Scope, load_shedder: LoadShedder) -> None:
    """Put the load shedder into the lifespan state, which the server passes to its connections."""
    if "state" in scope:
        scope["state"][_STATE_KEY] = load_shedder


def installed(state: dict[str, object]) -> LoadShedder | None:
    """Return the load shedder in the lifespan state, None if there is none."""
    load_shedder = state.get(_STATE_KEY)
    assert load_shedder is None or isinstance(load_shedder, LoadShedder)
    return load_shedder


def headers(
    request_headers: Sequence[tuple[bytes, bytes]], default_headers: Sequence[tuple[bytes, bytes]]
) -> list[tuple[bytes, bytes]]:
    """Return the headers of a rejection without those of every problem response; `default_headers` are the server's."""
    new_id = request_id(request_headers) or b"%032x" % random.getrandbits(128)
    return [*default_headers, (b"retry-after", b"%d" % RETRY_AFTER_S), (b"x-request-id", new_id)]


def request_id(headers: Sequence[tuple[bytes, bytes]]) -> bytes | None:
    """Return the request id that the client has sent, None if there is none or it is invalid."""
    for name, value in headers:
        if name == b"x-request-id" and REQUEST_ID.fullmatch(value):
            return value
    return None


def _body(limit: InFlightLimit) -> bytes:
    detail = f"the limit of {limit.what} in flight is reached"
    return problems.encode(Overloaded(detail, retry_after_s=RETRY_AFTER_S))
