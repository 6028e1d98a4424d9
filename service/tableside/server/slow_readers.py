"""Limits on unread responses: how slowly a client may read them, and how many bytes of them may wait in total.

Bytes that do not fit into the kernel's buffers wait in this process, and responses may be large.
"""

import math
from collections.abc import Callable
from typing import Protocol

RESPONSE_WAIT_S = 30.0
"""How long a response may wait unread, plus one second for each `BYTES_PER_S_MIN` bytes that the client does read."""

BYTES_PER_S_MIN = 1024

UNREAD_BYTES_MAX = 512 * 2**20
"""The limit on the memory for unread responses. Above it the slowest clients are disconnected immediately."""

MEASURED_S = 1.0
"""How long a client must have read before its speed is known. Clients with a known speed are disconnected first."""


class ReadProgress:
    """Measures how fast the client of one connection reads: `bytes_per_s`, infinity without a measurement.

    While `sending`, the service delays the response, not the client, so nothing is measured.
    """

    def __init__(self) -> None:
        self.sent_bytes = 0
        self.bytes_per_s = math.inf
        self.measured_s = 0.0
        self.sending = False
        self._since: float | None = None
        self._read_before = 0
        self._read_bytes = 0

    def measure(self, now: float, unread_bytes: int) -> None:
        """Note how much is unread. The measurement starts at the first call with unread bytes."""
        if self.sending or not unread_bytes:
            self._since, self.bytes_per_s, self.measured_s = None, math.inf, 0.0
            return
        if self._since is None:
            self._since, self._read_before = now, self.sent_bytes - unread_bytes
        self._read_bytes, self.measured_s = self.sent_bytes - unread_bytes - self._read_before, now - self._since
        self.bytes_per_s = self._read_bytes / self.measured_s if self.measured_s > 0 else math.inf

    def is_late(self, now: float, unread_bytes: int) -> bool:
        """Measure, and return whether the client reads too slowly."""
        self.measure(now, unread_bytes)
        return self.measured_s > RESPONSE_WAIT_S + self._read_bytes / BYTES_PER_S_MIN if unread_bytes else False

    @property
    def slowness(self) -> tuple[bool, float]:
        """A key that sorts the slowest first. Without a known speed, the ones that have waited longest are slowest."""
        known = self.measured_s >= MEASURED_S
        return not known, self.bytes_per_s if known else -self.measured_s


class Reader(Protocol):
    """The connection of a client that reads responses."""

    read_progress: ReadProgress

    @property
    def unread_bytes(self) -> int:
        """Return how many bytes of responses wait in this process until the client reads them."""
        ...

    @property
    def held_bytes(self) -> int:
        """Return how much memory the unread bytes occupy."""
        ...

    def abort(self) -> None:
        """Disconnect the client and drop its unread responses."""


class UnreadResponses:
    """The memory for the unread responses of all connections of this process. `clock` is the event loop's.

    Between two calls for a connection its client only reads, so the total is never too small.
    """

    def __init__(self, clock: Callable[[], float], bytes_max: int = UNREAD_BYTES_MAX) -> None:
        self._clock = clock
        self._bytes_max = bytes_max
        self._held: dict[Reader, int] = {}
        self._total = 0

    def count(self, reader: Reader) -> None:
        """Count the unread responses of a connection. Above the limit, disconnect the slowest readers."""
        self._update(reader, self._clock())
        if self._total > self._bytes_max:
            self._disconnect_slowest()

    def forget(self, reader: Reader) -> None:
        """Count nothing for a connection that has ended."""
        self._total -= self._held.pop(reader, 0)

    def _update(self, reader: Reader, now: float) -> None:
        unread_bytes = reader.unread_bytes
        reader.read_progress.measure(now, unread_bytes)
        self.forget(reader)
        if unread_bytes:
            self._held[reader] = reader.held_bytes
            self._total += reader.held_bytes

    def _disconnect_slowest(self) -> None:
        now = self._clock()
        for reader in [*self._held]:
            self._update(reader, now)
        for reader in sorted(self._held, key=lambda one: one.read_progress.slowness):
            if self._total <= self._bytes_max:
                return
            self.forget(reader)
            reader.abort()
