"""Calls as generators: they yield a `Request` or a `Pause` to a client, and receive the reply or the error."""

import os
import re
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Generator, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias, TypeVar

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


class AsyncRun(Protocol):
    """Performs the requests and pauses of a call without blocking, and returns its result."""

    async def __call__(self, call: Call[T], /) -> T:
        """Run a call."""


@dataclass(frozen=True, slots=True)
class CallSettings:
    """What the calls of a table have in common. `deadline_s` is for a call, `timeout_s` for each of its attempts."""

    retries: Retries = DEFAULT_RETRIES
    deadline_s: float | None = None
    timeout_s: float = 30.0
    token: RefreshingToken | None = None
    address: Address = field(default=Address(""))


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
        if not 200 <= reply.status_code < 300:
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
        """Wait before the next attempt, at least `retry_after_s`. Returns False, without waiting, if none is left."""
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
        headers, timeout_s = trace_headers() | dict(request.headers), self._settings.timeout_s
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        if self._ends_at is not None:
            remaining_s = self._ends_at - time.monotonic()
            if remaining_s <= 0:
                raise error(request.table, "deadline_exceeded", 504, "the deadline of the call has passed")
            wait = f"wait={remaining_s:.3f}"  # limits the service's work
            headers["Prefer"] = f"{headers['Prefer']}, {wait}" if "Prefer" in headers else wait
            timeout_s = remaining_s + RESPONSE_MARGIN_S
        reply = yield replace(request, headers=headers, timeout_s=timeout_s)
        if isinstance(reply, httpx.TransportError):
            raise unreachable(request.table, reply, self._settings.address, is_read=request.method == "GET") from reply
        assert reply is not None
        return reply


Failures: TypeAlias = Mapping[int, Mapping[str, Any]]
"""Failed operations by position, in order: `code`, `detail`, `retriable`, `applied` and `retry_after_s`."""


class Batch(ABC):
    """Operations that are sent together, and again as long as they may still succeed.

    A subclass may leave out permanent failures of operations that were certainly not applied. `is_first` means that no
    earlier operation of the caller has been sent.
    """

    def __init__(self, limits: CallLimits, count: int, *, is_first: bool = True) -> None:
        self._limits = limits
        self._count = count
        self._is_first = is_first

    @abstractmethod
    def _send(self, positions: Sequence[int]) -> Call[Failures]:
        """Send operations in one request."""

    @abstractmethod
    def _fail(self, positions: Sequence[int], failure: TablesideError) -> Failures:
        """Keep the failure of a whole request as the outcome of its operations."""

    @abstractmethod
    def _key(self, position: int) -> Hashable:
        """Return the key of an operation. Operations on one key keep their order."""

    @abstractmethod
    def _is_repeatable(self, position: int) -> bool:
        """Return whether an operation is safe to repeat although it may have been applied."""

    def send_all(self) -> Call[None]:
        """Send the operations until none may still succeed. Raises an error if the first request is rejected."""
        positions: Sequence[int] = range(self._count)
        while True:
            failures = yield from self._send_parts(positions)
            again = list(self._sent_again(failures))
            is_progress = len(again) < len(positions)
            if not again or not (yield from self._may_continue([failures[at] for at in again], is_progress)):
                return
            positions = again

    def _send_parts(self, positions: Sequence[int]) -> Call[Failures]:
        """Send operations in one request or, if the service rejects it as too large, in halves."""
        is_first, self._is_first = self._is_first, False
        try:
            return (yield from self._send(positions))
        except TablesideError as failure:
            if failure.status == 413 and len(positions) > 1:
                self._is_first, half = is_first, len(positions) // 2
                first = yield from self._send_parts(positions[:half])
                return {**first, **(yield from self._send_parts(positions[half:]))}
            if is_first and failure.status != 413 and not failure.retriable:
                raise
            return self._fail(positions, failure)

    def _sent_again(self, failures: Failures) -> Iterator[int]:
        """Yield the positions to send again, but none after an unknown outcome on its key: the order might change."""
        blocked: set[Hashable] = set()
        for position, failure in failures.items():
            is_safe = failure["applied"] == "no" or self._is_repeatable(position)
            if failure["retriable"] and is_safe and self._key(position) not in blocked:
                yield position
            elif failure["applied"] == "unknown":
                blocked.add(self._key(position))

    def _may_continue(self, failures: Sequence[Mapping[str, Any]], is_progress: bool) -> Call[bool]:
        """Return whether to send failed operations again, after a pause unless the next attempt certainly differs."""
        codes = {failure["code"] for failure in failures}
        if codes <= {"unsupported"}:  # Their tokens have been removed.
            return True
        if codes <= {"unsupported", "too_large"}:  # The response was full, and the next one has room for some of them.
            return is_progress
        retry_after_s = max(failure.get("retry_after_s") or 0.0 for failure in failures)
        return (yield from self._limits.pause(retry_after_s, f"{failures[0]['code']}: {failures[0]['detail']}"))


_PARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_STATE = re.compile(r"[\x21-\x7e][\x20-\x7e]{0,511}")


def trace_headers(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the headers `traceparent` and `tracestate` of OpenTelemetry's current span, or of the environment."""
    # A program with a current span has imported this module. Other programs should not pay for the import.
    if "opentelemetry.trace" in sys.modules:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        current: dict[str, str] = {}
        TraceContextTextMapPropagator().inject(current)
        if current:
            return current
    parent = environment.get("TRACEPARENT", "")
    if not _PARENT.fullmatch(parent):
        return {}
    state = environment.get("TRACESTATE", "")
    return {"traceparent": parent} | ({"tracestate": state} if _STATE.fullmatch(state) else {})
