"""Limits on unread responses: how slowly a client may read them, and how many bytes of them may wait in total.

Bytes that do not fit into the kernel's buffers wait in this process, and responses may be large.
"""

import math
from collections.abc import Iterable

RESPONSE_WAIT_S = 30.0
"""How long a response may wait unread, plus one second for each `BYTES_PER_S_MIN` bytes that the client does read."""

BYTES_PER_S_MIN = 1024

UNREAD_BYTES_MAX = 512 * 2**20
"""The limit of unread bytes on all connections. Above it the slowest clients are disconnected."""


class ReadProgress:
    """Measures how fast the client of one connection reads: `bytes_per_s`, infinity without a measurement."""

    def __init__(self) -> None:
        self.sent_bytes = 0
        self.unread_bytes = 0
        self.bytes_per_s = math.inf
        self._since: float | None = None
        self._read_before = 0

    def is_late(self, now: float, unread_bytes: int) -> bool:
        """Return whether the client reads too slowly. The measurement starts at the first call with unread bytes."""
        self.unread_bytes = unread_bytes
        if not unread_bytes:
            self._since, self.bytes_per_s = None, math.inf
            return False
        if self._since is None:
            self._since, self._read_before = now, self.sent_bytes - unread_bytes
        read_bytes, seconds = self.sent_bytes - unread_bytes - self._read_before, now - self._since
        self.bytes_per_s = read_bytes / seconds if seconds > 0 else math.inf
        return seconds > RESPONSE_WAIT_S + read_bytes / BYTES_PER_S_MIN


def slowest(clients: Iterable[ReadProgress]) -> list[ReadProgress]:
    """Return the slowest clients, without which at most `UNREAD_BYTES_MAX` bytes are unread."""
    measured = sorted(clients, key=lambda client: client.bytes_per_s)
    excess_bytes = sum(client.unread_bytes for client in measured) - UNREAD_BYTES_MAX
    found: list[ReadProgress] = []
    for client in measured:
        if excess_bytes <= 0 or client.bytes_per_s == math.inf:
            break
        excess_bytes -= client.unread_bytes
        found.append(client)
    return found
