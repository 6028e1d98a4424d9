"""Sends responses in pieces, while their clients read them and other requests have turns.

Bytes that do not fit into the kernel's buffers wait in this process, and responses may be large. So there are limits
on how slowly a client may read, and on how many bytes may wait in total.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable

PIECE_BYTES = 2**18
"""How many bytes of a response are passed to the transport when the client has read nearly all before them.

A TLS transport encrypts all bytes immediately and then reports that none are unread, so slow clients would not be
noticed.
"""

TURN_BYTES = 2 * PIECE_BYTES
"""How many bytes of a response are passed to the transport before other requests have a turn."""

RESPONSE_WAIT_S = 30.0
"""How long a response may wait unread, plus one second for each `BYTES_PER_S_MIN` bytes that the client does read."""

BYTES_PER_S_MIN = 1024

UNREAD_BYTES_MAX = 512 * 2**20
"""The limit on the memory for unread responses. Above it the slowest clients are disconnected immediately."""

MEASURED_S = 1.0
"""How long a client must have read before its speed is known. Clients with a known speed are disconnected first."""


class ResponseSender:
    """Sends bytes on a transport, and queues those that the client does not read yet.

    `writable` is set if no bytes are queued. `on_writable` is called when queued bytes have been sent.
    """

    def __init__(
        self, transport: asyncio.Transport, unread: "UnreadResponses", on_writable: Callable[[], None]
    ) -> None:
        self.writable = asyncio.Event()
        self.writable.set()
        self._transport = transport
        self._total_unread = unread
        self._on_writable = on_writable
        self._loop = asyncio.get_running_loop()
        self._queue: deque[memoryview] = deque()
        self._queued_bytes = self._held_bytes = 0
        self._sent_bytes = 0
        self._sending = False
        self._measured_since: float | None = None
        self._measured_s = 0.0
        self._read_before = self._read_bytes = 0

    @property
    def unread_bytes(self) -> int:
        """Return how many bytes of responses wait in this process until the client reads them."""
        return self._queued_bytes + self._transport.get_write_buffer_size()

    @property
    def held_bytes(self) -> int:
        """Return how much memory the unread bytes occupy: until all of a response is read, none of it is freed."""
        return max(self._held_bytes, unread_bytes) if (unread_bytes := self.unread_bytes) else 0

    def measure(self, now: float) -> None:
        """Measure how fast the client reads, from the first call with unread bytes on. `now` is a monotonic time.

        While the service itself delays the response, nothing is measured.
        """
        unread_bytes = self.unread_bytes
        if self._sending or not unread_bytes:
            self._measured_since, self._measured_s, self._read_bytes = None, 0.0, 0
            return
        if self._measured_since is None:
            self._measured_since, self._read_before = now, self._sent_bytes - unread_bytes
        self._measured_s = now - self._measured_since
        self._read_bytes = self._sent_bytes - unread_bytes - self._read_before

    def is_late(self, now: float) -> bool:
        """Measure, and return whether the client reads too slowly."""
        self.measure(now)
        return self._measured_s > RESPONSE_WAIT_S + self._read_bytes / BYTES_PER_S_MIN

    @property
    def slowness(self) -> tuple[bool, float]:
        """A key that sorts the slowest first. Without a known speed, the ones that have waited longest are slowest."""
        known = self._measured_s >= MEASURED_S
        return not known, self._read_bytes / self._measured_s if known else -self._measured_s

    def write(self, data: bytes) -> None:
        """Send bytes, or queue them until the client has read nearly all before them."""
        if self._transport.is_closing():
            return
        self._sent_bytes += len(data)
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
        self._sending = False
        self.writable.set()
        self._write_pieces()
        self._total_unread.count(self)
        if self.writable.is_set():
            self._on_writable()

    def _write_pieces(self) -> None:
        left_bytes = TURN_BYTES
        while self._queue and self.writable.is_set():
            if left_bytes <= 0:
                self._sending = True
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


class UnreadResponses:
    """The memory for the unread responses of all connections of this process.

    Between two calls for a connection its client only reads, so the total is never too small.
    """

    def __init__(self, bytes_max: int = UNREAD_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._held: dict[ResponseSender, int] = {}
        self._total = 0

    def count(self, reader: ResponseSender) -> None:
        """Count the unread responses of a connection. Above the limit, disconnect the slowest readers."""
        now = time.monotonic()
        self._update(reader, now)
        if self._total <= self._bytes_max:
            return
        for other in [*self._held]:
            self._update(other, now)
        for slowest in sorted(self._held, key=lambda one: one.slowness):
            if self._total <= self._bytes_max:
                return
            self.forget(slowest)
            slowest.abort()

    def forget(self, reader: ResponseSender) -> None:
        """Count nothing for a connection that has ended."""
        self._total -= self._held.pop(reader, 0)

    def _update(self, reader: ResponseSender, now: float) -> None:
        reader.measure(now)
        self.forget(reader)
        if held_bytes := reader.held_bytes:
            self._held[reader] = held_bytes
            self._total += held_bytes
