"""One request and its answer as they pass the edge: noted, their bytes held, and given up when nobody waits any more.

Knows nothing of routes or of what is asked.
"""

import asyncio
from collections.abc import Awaitable

from starlette.types import Message, Receive, Send

from ..catalog import InFlight, Reservation
from ..core import DeadlineExceeded
from .request_context import Notes

BODY_WAIT_S = 30.0
"""How long a body may take to come, beside a second for each `BYTES_PER_S_MIN` that have."""

BYTES_PER_S_MIN = 1024

PROMPT_S = 1.0
"""How long a request counts as in flight whose body comes: one that takes longer takes no place from others.

Of such a body counts only what has come, and the request again when it is complete.
"""


class Exchange:
    """What is received and sent for one request; it belongs to the task that it is made in."""

    __slots__ = (
        *("_aside", "_began_at", "_body", "_gone", "_late", "_operations", "_place", "_receive", "_send", "_task"),
        *("_timer", "notes"),
    )

    def __init__(self, notes: Notes, receive: Receive, send: Send, in_flight: InFlight) -> None:
        self.notes = notes
        self._place = Reservation(in_flight.requests)
        self._body = Reservation(in_flight.bytes)
        self._operations = in_flight.operations
        self._receive = receive
        self._send = send
        self._task = asyncio.current_task()
        self._timer: asyncio.TimerHandle | None = None
        self._began_at: float | None = None
        self._aside = False
        self._gone = False
        self._late = False

    def enter(self, declared_bytes: int) -> None:
        """Count as in flight, with a body as long as was said. Raise Overloaded if that would be too much."""
        self._place.grow_to(1)
        self._body.grow_to(declared_bytes)

    def leave(self) -> None:
        """Count no more."""
        self._place.leave()
        self._body.leave()

    async def receive(self) -> Message:
        """Receive a part of the body. Raise Overloaded if that is too much, DeadlineExceeded if it is too slow."""
        assert self._task is not None
        self._wait()
        try:
            message = await self._receive()
        except asyncio.CancelledError:
            if not self._late:
                raise
            self._task.uncancel()
            raise DeadlineExceeded(f"the body did not come within {BODY_WAIT_S:g} s, and too slowly") from None
        finally:
            if self._timer is not None:
                self._timer.cancel()
        self.notes.bytes_in += len(message.get("body", b""))
        self._body.grow_to(self.notes.bytes_in)
        if not message.get("more_body"):
            if self._aside:
                self._place.grow_to(1)
            self._operations.check()  # again: what is refused later has been decoded for nothing
        return message

    def send(self, message: Message) -> Awaitable[None]:
        """Send a part of the answer. It is the server's own coroutine that is returned: one less for each part."""
        notes = self.notes
        if message["type"] == "http.response.start":
            notes.status = message["status"]
            message["headers"].append((b"x-request-id", notes.request_id.encode()))
        else:
            notes.bytes_out += len(message.get("body", b""))
            self.leave()  # What remains is to wait until the client has read the response.
        return self._send(message)

    def left(self) -> None:
        """Give up what nobody waits for any more, if it only reads; a write is finished."""
        if self.notes.reads and self._task is not None:
            self._gone = True
            self._task.cancel()

    def cancelled_as_left(self) -> bool:
        """Say of a cancellation whether that was it, and that it ends here in any case."""
        if self._task is not None:
            self._task.uncancel()
        return self._gone

    def _wait(self) -> None:
        # asyncio.timeout would do as well, at three times the cost, and every request with a body pays.
        assert self._task is not None
        loop = self._task.get_loop()
        if self._began_at is None:
            self._began_at = loop.time()
        wait_s = BODY_WAIT_S + self.notes.bytes_in / BYTES_PER_S_MIN if self._aside else PROMPT_S
        self._timer = loop.call_at(self._began_at + wait_s, self._lose_patience)

    def _lose_patience(self) -> None:
        """Let others go before it at first, then give it up."""
        if not self._aside:
            self._aside = True
            self._place.leave()
            self._body.shrink_to(self.notes.bytes_in)
            self._wait()
            return
        self._late = True
        if self._task is not None:
            self._task.cancel()
