"""Calls as generators, which the blocking and the asynchronous client share.

A call yields a `Request` or a `Pause`, and receives the reply or the transport error. The client that
runs the call performs the input and output.
"""

import os
import re
import sys
import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias, TypeVar

import httpx

from tableside_client.address import Address
from tableside_client.credential import Credential, RefreshingToken
from tableside_client.errors import TablesideError, error, from_problem, problem_of, unreachable
from tableside_client.http1 import Reply, Request
from tableside_client.retries import DEFAULT_RETRIES, Retries, RetryBudget, Waits

RESPONSE_MARGIN_S = 1.0
"""How much longer than a deadline the client waits, because the service answers at the deadline."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Pause:
    """A time to wait, in seconds, and the failure that is its reason."""

    seconds: float
    reason: str


Call: TypeAlias = Generator[Request | Pause, Reply | httpx.TransportError | None, T]


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


_UNKNOWN = Address("")


@dataclass(frozen=True, slots=True)
class CallSettings:
    """What the calls of a table have in common.

    Attributes:
        retries: The limits of their retries.
        deadline_s: The time for all attempts of a call, in seconds.
        timeout_s: The timeout of one attempt, in seconds.
        token: The bearer token, None for none.
        address: The address of the service, for messages.
    """

    retries: Retries = DEFAULT_RETRIES
    deadline_s: float | None = None
    timeout_s: float = 30.0
    token: RefreshingToken | None = None
    address: Address = _UNKNOWN


class Calls:
    """The part of a client that does not depend on how it waits: the settings of its calls, and their pauses."""

    def __init__(self, address: Address, credential: Credential, retries: Retries, timeout_s: float) -> None:
        token = RefreshingToken(credential)
        self._settings = CallSettings(retries, timeout_s=timeout_s, token=token, address=address)
        self._waits = Waits()

    @property
    def url(self) -> str:
        """The address of the service."""
        return self._settings.address.url

    @property
    def waited_s(self) -> float:
        """The time while at least one call waited for a retry so far, in seconds."""
        return self._waits.total_s


class CallLimits:
    """The remaining time and attempts of one call."""

    def __init__(self, settings: CallSettings) -> None:
        retries, deadline_s = settings.retries, settings.deadline_s
        self._ends_at = None if deadline_s is None else time.monotonic() + deadline_s
        if deadline_s is not None:
            retries = replace(retries, total_s=min(retries.total_s, deadline_s))
        self._budget = RetryBudget(retries)
        self._settings = settings

    def send(self, request: Request) -> Call[Reply]:
        """Send a request once. Raises `TablesideError` unless the response's status is 2xx."""
        reply = yield from self._send(request)
        if not reply.is_success:
            proxy, retry_after = self._settings.address.proxy, reply.headers.get("retry-after")
            raise from_problem(request.table, reply.status_code, problem_of(reply), retry_after, proxy)
        return reply

    def send_with_retries(self, request: Request) -> Call[Reply]:
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

    def _send(self, request: Request) -> Call[Reply]:
        """Send a request, and again if the service rejects a token that has changed since."""
        token = self._settings.token
        sent = None if token is None else token.current()
        reply = yield from self._send_with(request, sent)
        if reply.status_code == 401 and token is not None and token.reload_differs(sent):
            return (yield from self._send_with(request, token.current()))
        return reply

    def _send_with(self, request: Request, token: str | None) -> Call[Reply]:
        headers = trace_headers() | dict(request.headers)
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        reply = yield replace(request, headers=headers, timeout_s=self._limit(request, headers))
        if isinstance(reply, httpx.TransportError):
            raise unreachable(request.table, reply, self._settings.address, is_read=request.method == "GET") from reply
        assert reply is not None
        return reply

    def _limit(self, request: Request, headers: dict[str, str]) -> float:
        """Return the timeout. With a deadline, add the header that limits the service's work."""
        if self._ends_at is None:
            return self._settings.timeout_s
        remaining_s = self._ends_at - time.monotonic()
        if remaining_s <= 0:
            raise error(request.table, "deadline_exceeded", 504, "the deadline of the call has passed")
        wait = f"wait={remaining_s:.3f}"
        headers["Prefer"] = f"{headers['Prefer']}, {wait}" if "Prefer" in headers else wait
        return remaining_s + RESPONSE_MARGIN_S


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
    parent = environment.get("TRACEPARENT", "")
    if not _PARENT.fullmatch(parent):
        return {}
    state = environment.get("TRACESTATE", "")
    return {"traceparent": parent} | ({"tracestate": state} if _STATE.fullmatch(state) else {})


def _current() -> dict[str, str]:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    headers: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(headers)
    return headers
