"""The reception of one request and the sending of its response: timeouts, admission and disconnects.

It reserves the request's share of the in-flight limits, times out slow bodies, and cancels reads whose client has
disconnected.
"""

import asyncio
from collections.abc import Awaitable

from starlette.types import Message, Receive, Send

from ..catalog import InFlight, Reservation
from ..core import DeadlineExceeded
from .request_context import RequestContext

BODY_TIMEOUT_S = 30.0
"""The timeout of a body, plus one second for each `BODY_BYTES_PER_S_MIN` that have arrived."""

BODY_BYTES_PER_S_MIN = 1024

SLOW_AFTER_S = 1.0
"""The time after which an incomplete body is slow and its request no longer occupies a slot.

Only the bytes of a slow body that have arrived count as in flight. The request needs a slot again when the body is
complete.
"""


class RequestLifecycle:
    """Wraps `receive` and `send` of one request. Create it in the task that serves the request."""

    __slots__ = (
        *("_body_started_at", "_disconnected", "reserved", "_operations", "_receive", "_reservation", "_send"),
        *("_slow", "_task", "_timed_out", "_timer", "context"),
    )

    def __init__(self, context: RequestContext, receive: Receive, send: Send, in_flight: InFlight) -> None:
        self.context = context
        self._reservation = Reservation(in_flight)
        self.reserved = False
        self._operations = in_flight.operations
        self._receive = receive
        self._send = send
        self._task = asyncio.current_task()
        self._timer: asyncio.TimerHandle | None = None
        self._body_started_at: float | None = None
        self._slow = False
        self._disconnected = False
        self._timed_out = False

    def enter(self, declared_bytes: int) -> None:
        """Count the request and the declared length of its body as in flight. Raise Overloaded above the limits."""
        self.reserved = True
        self._reservation.enter(declared_bytes)

    def leave(self) -> None:
        """Stop counting the request and its body as in flight."""
        if self.reserved:
            self.reserved = False
            self._reservation.leave()

    async def receive(self) -> Message:
        """Receive a part of the body. Raise Overloaded above the limits, DeadlineExceeded if the body is too slow."""
        assert self._task is not None
        self._start_timer()
        try:
            message = await self._receive()
        except asyncio.CancelledError:
            if not self._timed_out:
                raise
            self._task.uncancel()
            raise DeadlineExceeded(f"the body was too slow: it did not arrive within {BODY_TIMEOUT_S:g} s") from None
        finally:
            if self._timer is not None:
                self._timer.cancel()
        self.reserved = True
        self.context.bytes_in += len(message.get("body", b""))
        self._reservation.grow_body_to(self.context.bytes_in)
        if not message.get("more_body"):
            if self._slow:
                self._reservation.take_slot()
            self._operations.check()  # Check again now, because a later rejection would waste the decoding.
        return message

    def send(self, message: Message) -> Awaitable[None]:
        """Send a part of the response.

        Returns the server's own coroutine, which saves one coroutine for each part.
        """
        context = self.context
        if message["type"] == "http.response.start":
            context.status = message["status"]
            message["headers"].append((b"x-request-id", context.request_id.encode()))
        else:
            context.bytes_out += len(message.get("body", b""))
            self.leave()  # What remains is to wait until the client has read the response.
        return self._send(message)

    def on_disconnect(self) -> None:
        """Cancel the request if it only reads. A write continues to its end."""
        if self.context.reads and self._task is not None:
            self._disconnected = True
            self._task.cancel()

    def absorb_cancellation(self) -> bool:
        """Mark the task as not cancelled any more. Return whether a disconnect had caused the cancellation."""
        if self._task is not None:
            self._task.uncancel()
        return self._disconnected

    def _start_timer(self) -> None:
        # asyncio.timeout costs three times as much, and every request with a body pays for it.
        assert self._task is not None
        loop = self._task.get_loop()
        if self._body_started_at is None:
            self._body_started_at = loop.time()
        timeout_s = BODY_TIMEOUT_S + self.context.bytes_in / BODY_BYTES_PER_S_MIN if self._slow else SLOW_AFTER_S
        self._timer = loop.call_at(self._body_started_at + timeout_s, self._on_body_timeout)

    def _on_body_timeout(self) -> None:
        """Free the request's slot at the first timeout, and cancel the request at the second."""
        if not self._slow:
            self._slow = True
            self._reservation.step_aside(self.context.bytes_in)
            self._start_timer()
            return
        self._timed_out = True
        if self._task is not None:
            self._task.cancel()
