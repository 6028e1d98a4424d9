"""What is sent over TLS, a piece at a time.

A transport of TLS takes everything at once, encrypts it and hands it on to another, and then says that nothing waits
to be read, however much does: who reads slowly would not be noticed. When it is closed it also gives what waits half a
minute. So here it is given the next piece when the one before is on its way. Knows nothing of HTTP.
"""

import asyncio
from collections import deque

PIECE_BYTES = 131_072


class InPieces(asyncio.Transport):
    """A transport that hands on what is written to `inner` as fast as that is read.

    Whoever is told by `inner` that writing may go on asks `go_on` first, and calls `begin` once he can be told.
    """

    def __init__(self, inner: asyncio.Transport) -> None:
        super().__init__()
        self._inner = inner
        self._waiting: deque[memoryview] = deque()
        self._waiting_bytes = 0
        self._closing = False
        self.get_extra_info = inner.get_extra_info  # type: ignore[method-assign]
        self.pause_reading = inner.pause_reading  # type: ignore[method-assign]
        self.resume_reading = inner.resume_reading  # type: ignore[method-assign]

    def begin(self) -> None:
        """Have `inner` say so when it does not send what it was given; that may be the case already."""
        self._inner.set_write_buffer_limits(high=1)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send the data when all before it was sent."""
        if self._waiting or len(data) > PIECE_BYTES:
            self._waiting.append(memoryview(data))
            self._waiting_bytes += len(data)
            self.go_on()
        else:
            self._inner.write(data)

    def go_on(self) -> bool:
        """Hand on what waits, as far as it can be sent; return whether nothing waits any more."""
        while self._waiting and not self._inner.get_write_buffer_size():
            first = self._waiting.popleft()
            piece, rest = first[:PIECE_BYTES], first[PIECE_BYTES:]
            self._waiting_bytes -= len(piece)
            if rest:
                self._waiting.appendleft(rest)
            self._inner.write(piece)
        if self._closing and not self._waiting:
            self._inner.close()
        return not self.get_write_buffer_size()

    def get_write_buffer_size(self) -> int:
        """Return how much waits here."""
        return self._waiting_bytes + self._inner.get_write_buffer_size()

    def is_closing(self) -> bool:
        """Return whether it is closed, or will be when what was written is sent."""
        return self._closing or self._inner.is_closing()

    def close(self) -> None:
        """Send what was written, then close."""
        self._closing = True
        if not self._waiting:
            self._inner.close()

    def abort(self) -> None:
        """Close at once."""
        self._waiting.clear()
        self._waiting_bytes = 0
        self._inner.abort()
