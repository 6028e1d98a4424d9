"""Calls as generators, which the blocking and the asynchronous client share.

A call yields a `Request` or a `Pause`, and receives the response or the transport error. The client that
runs the call performs the input and output.
"""

import os
import re
import sys
import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias, TypeVar

import httpx

from tableside_client.address import EnvironmentProxy
from tableside_client.errors import TablesideError, error, from_problem, problem_of, unreachable
from tableside_client.http_clients import attempt_timeout
from tableside_client.retries import DEFAULT_RETRIES, Retries, RetryBudget
from tableside_client.tls import Tls

RESPONSE_MARGIN_S = 1.0
"""How much longer than a deadline the client waits, because the service answers at the deadline."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Request:
    """A request to send once. `repeatable` means that it may be sent again although it may have been applied."""

    method: str
    path: str
    table: str | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None
    repeatable: bool = True
    timeout_s: float | None = None

    def arguments(self, base_url: str) -> dict[str, Any]:
        """Return the arguments of the `request` method of httpx clients.

        With a complete URL and without empty parameters, httpx parses the URL once instead of three times.
        """
        arguments = {name: getattr(self, name) for name in ("method", "headers", "content")}
        limited = {} if self.timeout_s is None else {"timeout": attempt_timeout(self.timeout_s)}
        return {"url": base_url + self.path, "params": self.params or None, **arguments, **limited}


@dataclass(frozen=True, slots=True)
class Pause:
    """A time to wait, in seconds, and the failure that is its reason."""

    seconds: float
    reason: str


Call: TypeAlias = Generator[Request | Pause, httpx.Response | httpx.TransportError | None, T]


class Run(Protocol):
    """Performs the requests and pauses of a call, and returns its result."""

    def __call__(self, call: Call[T], /) -> T:
        """Run a call."""
        ...


class AsyncRun(Protocol):
    """Performs the requests and pauses of a call without blocking, and returns its result."""

    async def __call__(self, call: Call[T], /) -> T:
        """Run a call."""
        ...


@dataclass(frozen=True, slots=True)
class CallSettings:
    """The limits of each call: its retries, and the deadline for all of its attempts, in seconds.

    `tls` and `proxy` are for messages.
    """

    retries: Retries = DEFAULT_RETRIES
    deadline_s: float | None = None
    tls: Tls | None = None
    proxy: EnvironmentProxy | None = None


class CallLimits:
    """The remaining time and attempts of one call."""

    def __init__(self, settings: CallSettings) -> None:
        retries, deadline_s = settings.retries, settings.deadline_s
        self._ends_at = None if deadline_s is None else time.monotonic() + deadline_s
        total_s = retries.total_s if deadline_s is None else min(retries.total_s, deadline_s)
        self._budget = RetryBudget(replace(retries, total_s=total_s))
        self._settings = settings

    def send(self, request: Request) -> Call[httpx.Response]:
        """Send a request once. Raises `TablesideError` unless the response's status is 2xx."""
        reply = yield self._with_deadline(request)
        if isinstance(reply, httpx.TransportError):
            is_read, settings = request.method == "GET", self._settings
            raise unreachable(request.table, reply, settings.tls, settings.proxy, is_read=is_read) from reply
        assert reply is not None
        if not reply.is_success:
            retry_after = reply.headers.get("retry-after")
            raise from_problem(request.table, reply.status_code, problem_of(reply), retry_after, self._settings.proxy)
        return reply

    def send_with_retries(self, request: Request) -> Call[httpx.Response]:
        """Send a request until it succeeds, fails permanently, or the time or the attempts are used up."""
        while True:
            try:
                return (yield from self.send(request))
            except TablesideError as failure:
                safe = request.repeatable or failure.applied == "no"
                if not (failure.retriable and safe and (yield from self.pause(failure.retry_after_s, str(failure)))):
                    raise

    def pause(self, retry_after_s: float | None, reason: str) -> Call[bool]:
        """Wait before the next attempt, for at least `retry_after_s`. Returns False without waiting if there is none.

        `reason` is the failure of the last attempt, for the log.
        """
        seconds = self._budget.next_pause_s(retry_after_s)
        if seconds is None:
            return False
        yield Pause(seconds, reason)
        return True

    def _with_deadline(self, request: Request) -> Request:
        """Add the trace context and, with a deadline, the header that limits the service's work."""
        headers = trace_headers() | dict(request.headers)
        if self._ends_at is None:
            return replace(request, headers=headers)
        remaining_s = self._ends_at - time.monotonic()
        if remaining_s <= 0:
            raise error(request.table, "deadline_exceeded", 504, "the deadline of the call has passed")
        wait = f"wait={remaining_s:.3f}"
        headers["Prefer"] = f"{headers['Prefer']}, {wait}" if "Prefer" in headers else wait
        return replace(request, headers=headers, timeout_s=remaining_s + RESPONSE_MARGIN_S)


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
