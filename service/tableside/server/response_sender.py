"""Send responses to one client in pieces, while the client reads them and other requests have turns."""

import asyncio
from collections import deque
from collections.abc import Callable

from .slow_readers import ReadProgress, UnreadResponses

PIECE_BYTES = 131_072
"""How many bytes of a response are passed to the transport when the client has read nearly all before them.

A TLS transport encrypts all bytes immediately and then reports that none are unread, so slow clients would not be
noticed.
"""

TURN_BYTES = 4 * PIECE_BYTES
"""How many bytes of a response are passed to the transport before other requests have a turn."""


class ResponseSender:
    """Sends bytes on a transport, and queues those that the client does not read yet.

    `writable` is set if no bytes are queued. `on_writable` is called when queued bytes have been sent.
    """

    def __init__(self, transport: asyncio.Transport, unread: UnreadResponses, on_writable: Callable[[], None]) -> None:
        self.read_progress = ReadProgress()
        self.writable = asyncio.Event()
        self.writable.set()
        self._transport = transport
        self._total_unread = unread
        self._on_writable = on_writable
        self._loop = asyncio.get_running_loop()
        self._queue: deque[memoryview] = deque()
        self._queued_bytes = 0
        self._held_bytes = 0

    @property
    def unread_bytes(self) -> int:
        """Return how many bytes of responses wait in this process until the client reads them."""
        return self._queued_bytes + self._transport.get_write_buffer_size()

    @property
    def held_bytes(self) -> int:
        """Return how much memory the unread bytes occupy: until all of a response is read, none of it is freed."""
        return max(self._held_bytes, unread_bytes) if (unread_bytes := self.unread_bytes) else 0

    def is_late(self, now: float) -> bool:
        """Return whether the client reads too slowly. `now` is a time of `time.monotonic`."""
        return self.read_progress.is_late(now, self.unread_bytes)

    def write(self, data: bytes) -> None:
        """Send bytes, or queue them until the client has read nearly all before them."""
        if self._transport.is_closing():
            return
        self.read_progress.sent_bytes += len(data)
        if self._held_bytes and not self.unread_bytes:
            self._held_bytes = 0
        if len(data) <= PIECE_BYTES and self.writable.is_set():
            self._transport.write(data)
        else:
            self._queue.append(memoryview(data))
            self._queued_bytes += len(data)
            self._held_bytes += len(data)
            self._write_pieces()
        if not self.writable.is_set():
            self._total_unread.count(self)

    def pause(self) -> None:
        """Pause, because the client does not read as fast."""
        self.writable.clear()

    def resume(self) -> None:
        """Continue after the client has read nearly all that was sent."""
        self.read_progress.sending = False
        self.writable.set()
        self._write_pieces()
        self._total_unread.count(self)
        if self.writable.is_set():
            self._on_writable()

    def _write_pieces(self) -> None:
        left_bytes = TURN_BYTES
        while self._queue and self.writable.is_set():
            if left_bytes <= 0:
                self.read_progress.sending = True
                self.writable.clear()
                self._loop.call_soon(self.resume)
                return
            left_bytes -= PIECE_BYTES
            piece, rest = self._queue[0][:PIECE_BYTES], self._queue[0][PIECE_BYTES:]
            self._queue[0] = rest
            if not rest:
                self._queue.popleft()
            self._queued_bytes -= len(piece)
            self._transport.write(piece)

    def close(self) -> None:
        """Drop the queue after the connection has ended, and let a response that waits continue."""
        self._drop_queue()
        self._total_unread.forget(self)
        self.writable.set()

    def abort(self) -> None:
        """Disconnect the client and drop its unread responses."""
        self._drop_queue()
        self._transport.abort()

    def _drop_queue(self) -> None:
        self._queue.clear()
        self._queued_bytes = self._held_bytes = 0
