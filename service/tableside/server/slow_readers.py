"""Answers that are not read: who takes none of what he was sent is let go, and all of it together is bounded.

What the kernel has no room for waits in this process, and an answer may be large. Knows nothing of requests.
"""

import asyncio
from collections.abc import Iterable
from typing import Protocol, TypeVar

ANSWER_WAIT_S = 30.0
"""How long what was sent may wait to be read, beside a second for each `BYTES_PER_S_MIN` that are."""

BYTES_PER_S_MIN = 1024

UNREAD_BYTES_MAX = 512 * 2**20
"""How much may wait to be read on all connections; above that the slowest readers are let go at once."""


class Reader:
    """The other side of a connection, as somebody who reads."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._since: float | None = None
        self._bytes = 0

    @property
    def unread_bytes(self) -> int:
        """Return how much waits in this process to be read."""
        return self._transport.get_write_buffer_size()

    def caught_up(self) -> None:
        """Begin anew: nearly all was read that was sent, or more was sent because of that."""
        self._since = None

    def is_late(self, now: float) -> bool:
        """Whether what was sent waits for too long; looked at again and again, by one clock."""
        unread = self.unread_bytes
        if not unread:
            self._since = None
        elif self._since is None:
            self._since, self._bytes = now, unread
        else:
            return now - self._since > ANSWER_WAIT_S + self._read(unread) / BYTES_PER_S_MIN
        return False

    def bytes_per_s(self, now: float) -> float:
        """Return how fast he reads, as far as it is known; infinity where it was not looked at twice."""
        if self._since is None or now <= self._since:
            return float("inf")
        return self._read(self.unread_bytes) / (now - self._since)

    def _read(self, unread: int) -> int:
        return max(0, self._bytes - unread)


class Connection(Protocol):
    """What has a reader, and knows for other reasons too when it is late."""

    reader: Reader

    def is_late(self, now: float) -> bool:
        """Return whether something that should have come has not."""
        ...


Some = TypeVar("Some", bound=Connection)


def late(connections: Iterable[Some], now: float) -> list[Some]:
    """Return the connections to let go: those that are late, and where too much is unread, the slowest readers."""
    found: list[Some] = []
    others: list[Some] = []
    for connection in connections:
        (found if connection.is_late(now) else others).append(connection)
    total_bytes = sum(connection.reader.unread_bytes for connection in others)
    if total_bytes <= UNREAD_BYTES_MAX:
        return found
    for connection in sorted(others, key=lambda one: one.reader.bytes_per_s(now)):
        if total_bytes <= UNREAD_BYTES_MAX or connection.reader.bytes_per_s(now) == float("inf"):
            break
        total_bytes -= connection.reader.unread_bytes
        found.append(connection)
    return found
