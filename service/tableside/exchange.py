"""One request and its answer as they pass the edge: noted, their bytes held, and given up when nobody waits any more.

Knows nothing of routes or of what is asked.
"""

import asyncio
from collections.abc import Awaitable

from starlette.types import Message, Receive, Send

from .errors import DeadlineExceeded
from .in_flight import InFlight, Share
from .notes import Notes

BODY_WAIT_S = 30.0
"""How long the next part of a body may take to come: it is held in the bounds of what is in flight all the while."""


class Exchange:
    """What is received and sent for one request; it belongs to the task that it is made in."""

    __slots__ = ("_gone", "_late", "_operations", "_receive", "_send", "_task", "body", "notes")

    def __init__(self, notes: Notes, receive: Receive, send: Send, in_flight: InFlight) -> None:
        self.notes = notes
        self.body = Share(in_flight.bytes)
        self._operations = in_flight.operations
        self._receive = receive
        self._send = send
        self._task = asyncio.current_task()
        self._gone = False
        self._late = False

    async def receive(self) -> Message:
        """Receive a part of the body. Raise Overloaded if that is too much, DeadlineExceeded if none comes."""
        assert self._task is not None
        timer = self._task.get_loop().call_later(BODY_WAIT_S, self._lose_patience)
        try:
            message = await self._receive()
        except asyncio.CancelledError:
            if not self._late:
                raise
            self._task.uncancel()
            raise DeadlineExceeded(f"the next part of the body did not come within {BODY_WAIT_S:g} s") from None
        finally:
            timer.cancel()
        self.notes.bytes_in += len(message.get("body", b""))
        self.body.grow_to(self.notes.bytes_in)
        if not message.get("more_body"):
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

    def _lose_patience(self) -> None:
        # asyncio.timeout would do as well, at three times the cost, and every request with a body pays.
        self._late = True
        if self._task is not None:
            self._task.cancel()
