"""Limits on unread responses: how slowly a client may read them, and how many bytes of them may wait in total.

Bytes that do not fit into the kernel's buffers wait in this process, and responses may be large.
"""

import asyncio
from collections.abc import Collection

RESPONSE_WAIT_S = 30.0
"""How long a response may wait unread, plus one second for each `BYTES_PER_S_MIN` bytes that the client does read."""

BYTES_PER_S_MIN = 1024

UNREAD_BYTES_MAX = 512 * 2**20
"""The limit of unread bytes on all connections. Above it the slowest clients are disconnected."""


class ReadProgress:
    """Measures how fast the client of one connection reads. `queued_bytes` are not written yet."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._since: float | None = None
        self._bytes = 0
        self.queued_bytes = 0

    @property
    def unread_bytes(self) -> int:
        """Return how many bytes wait in this process until the client reads them."""
        return self.queued_bytes + self._transport.get_write_buffer_size()

    def restart(self) -> None:
        """Start a new measurement, because the client has read nearly everything."""
        self._since = None

    def is_late(self, now: float) -> bool:
        """Return whether the client reads too slowly. The measurement starts at the first call with unread bytes."""
        unread = self.unread_bytes
        if not unread:
            self._since = None
        elif self._since is None:
            self._since, self._bytes = now, unread
        else:
            return now - self._since > RESPONSE_WAIT_S + self._read(unread) / BYTES_PER_S_MIN
        return False

    def bytes_per_s(self, now: float) -> float:
        """Return how fast the client reads, or infinity without a measurement."""
        if self._since is None or now <= self._since:
            return float("inf")
        return self._read(self.unread_bytes) / (now - self._since)

    def _read(self, unread: int) -> int:
        return max(0, self._bytes - unread)


def slowest(clients: Collection[ReadProgress], now: float) -> list[ReadProgress]:
    """Return the slowest clients, without which at most `UNREAD_BYTES_MAX` bytes are unread."""
    excess_bytes = sum(client.unread_bytes for client in clients) - UNREAD_BYTES_MAX
    found: list[ReadProgress] = []
    if excess_bytes <= 0:
        return found
    for client in sorted(clients, key=lambda client: client.bytes_per_s(now)):
        if excess_bytes <= 0 or client.bytes_per_s(now) == float("inf"):
            break
        excess_bytes -= client.unread_bytes
        found.append(client)
    return found
