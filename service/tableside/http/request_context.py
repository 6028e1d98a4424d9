"""What is noted of a request while it is served, for its log line, trace and metrics; never a key or a value."""

import time
from typing import Protocol

import msgspec
from starlette.types import Scope

from ..auth import Caller

SCOPE_KEY = "tableside"
"""Where in the ASGI scope a request's notes are."""

CALLER_KEY = "tableside.caller"
"""Where in the ASGI scope a request's caller is."""


class Notes(msgspec.Struct):
    """One request. `seconds` and what came of it are known when it has ended; `status` 0 is that nobody was left to
    answer. `route` is the path as it is declared, with `{table}` and `{key:path}`, and empty where there is none.
    `reads` says that it changes nothing, so that it need not be finished for nobody.
    """

    request_id: str
    method: str
    started: float = msgspec.field(default_factory=time.perf_counter)
    route: str = ""
    table: str | None = None
    caller: str | None = None
    operations: int = 0
    failed: int = 0
    status: int = 0
    code: str | None = None
    bytes_in: int = 0
    bytes_out: int = 0
    reads: bool = False
    seconds: float = 0.0


class Observer(Protocol):
    """Who is told of every request when it begins and when it has ended, in the task that serves it."""

    def began(self, scope: Scope, notes: Notes) -> None:
        """Take note that a request begins; of the notes, those that come first are known."""
        ...

    def ended(self, scope: Scope, notes: Notes) -> None:
        """Take note that it has ended."""
        ...


def notes(scope: Scope) -> Notes:
    """Return the notes of a request."""
    found: Notes = scope[SCOPE_KEY]
    return found


def caller_of(scope: Scope) -> Caller:
    """Return the caller of a request that was admitted."""
    found: Caller = scope[CALLER_KEY]
    return found
