"""An open-loop load generator: it sends requests at a fixed rate, whether or not earlier ones have completed.

It runs in a separate process on a separate core. With HTTP/1.1, a connection has one request at a time: requests that
are due while all connections are busy are counted as not sent. A client with a fixed rate has real-time priority if
that is permitted: on a machine of its own, it would not wait for a processor.
"""

import os
import random
import select
import socket
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from urllib.parse import urlsplit

TICK_S = 0.002
RECEIVE_BYTES = 262_144


@dataclass
class Seen:
    """The results of one run: counts, and the latencies of accepted and refused requests in seconds."""

    seconds: float
    statuses: Counter[int] = field(default_factory=Counter)
    accepted_s: list[float] = field(default_factory=list)
    refused_s: list[float] = field(default_factory=list)
    unsent: int = 0
    broken: int = 0

    @property
    def accepted_per_s(self) -> float:
        """Return the number of successful responses per second."""
        return self.statuses[200] / self.seconds

    @property
    def offered_per_s(self) -> float:
        """Return the number of requests per second, including the ones not sent."""
        return (self.statuses.total() + self.unsent + self.broken) / self.seconds


def offer(
    url: str, requests: Sequence[bytes], *, connections: int, seconds: float, core: int, rate: float | None = None
) -> Seen:
    """Send requests from a process on `core`, at `rate` per second, or unlimited: one per free connection."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_offer, url, requests, connections, seconds, core, rate).result()


def quantile(times: Sequence[float], share: float) -> float:
    """Return a quantile, or 0 without times."""
    return sorted(times)[min(len(times) - 1, int(share * len(times)))] if times else 0.0


def _offer(
    url: str, requests: Sequence[bytes], connections: int, seconds: float, core: int, rate: float | None
) -> Seen:
    os.sched_setaffinity(0, {core})
    if rate is not None:
        with suppress(PermissionError):
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    parts = urlsplit(url)
    loop = _Loop((parts.hostname or "127.0.0.1", parts.port or 80), requests, connections)
    return loop.run(seconds, rate)


class _Connection:
    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.sent_at = 0.0
        self.status = 0
        self.missing = -1
        self.unsent = b""


class _Loop:
    """All connections of a run."""

    def __init__(self, address: tuple[str, int], requests: Sequence[bytes], connections: int) -> None:
        self._address = address
        self._requests = requests
        self._epoll = select.epoll()
        self._all: dict[int, _Connection] = {}
        self._idle: list[_Connection] = []
        for _ in range(connections):
            self._connect()

    def run(self, seconds: float, rate: float | None) -> Seen:
        """Send requests for the duration, then wait for the responses that are due."""
        seen = Seen(seconds)
        started = now = time.perf_counter()
        come = 0
        while now < started + seconds:
            due = len(self._idle) if rate is None else int((now - started) * rate) - come
            come += due
            for _ in range(min(due, len(self._idle))):
                self._send(self._idle.pop(), now)
                due -= 1
            seen.unsent += due
            self._receive(seen, TICK_S)
            now = time.perf_counter()
        while len(self._idle) < len(self._all) and time.perf_counter() < now + 30:
            self._receive(Seen(1), TICK_S)
        for connection in self._all.values():
            connection.socket.close()
        return seen

    def _connect(self) -> None:
        connection = _Connection(self._address)
        self._all[connection.socket.fileno()] = connection
        self._epoll.register(connection.socket, select.EPOLLIN)
        self._idle.append(connection)

    def _send(self, connection: _Connection, now: float) -> None:
        connection.sent_at, connection.missing = now, -1
        self._write(connection, random.choice(self._requests))

    def _write(self, connection: _Connection, data: bytes) -> None:
        try:
            sent = connection.socket.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            sent = len(data)  # the next read reports the error
        connection.unsent = data[sent:]
        events = select.EPOLLIN | (select.EPOLLOUT if connection.unsent else 0)
        if connection.unsent or sent < len(data) or events != select.EPOLLIN:
            self._epoll.modify(connection.socket, events)

    def _receive(self, seen: Seen, timeout_s: float) -> None:
        for number, event in self._epoll.poll(timeout_s):
            connection = self._all[number]
            if event & select.EPOLLOUT:
                self._write(connection, connection.unsent)
                if not connection.unsent:
                    self._epoll.modify(connection.socket, select.EPOLLIN)
            if event & ~select.EPOLLOUT:
                self._read(connection, seen)

    def _read(self, connection: _Connection, seen: Seen) -> None:
        try:
            data = connection.socket.recv(RECEIVE_BYTES)
        except OSError:
            data = b""
        if not data:
            self._replace(connection, seen)
            return
        if connection.missing < 0:
            head, _, rest = data.partition(b"\r\n\r\n")
            connection.status = int(head[9:12])
            length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
            connection.missing = int(length or 0) - len(rest)
        else:
            connection.missing -= len(data)
        if connection.missing == 0:
            took_s = time.perf_counter() - connection.sent_at
            seen.statuses[connection.status] += 1
            (seen.accepted_s if connection.status == 200 else seen.refused_s).append(took_s)
            self._idle.append(connection)

    def _replace(self, connection: _Connection, seen: Seen) -> None:
        seen.broken += 1
        del self._all[connection.socket.fileno()]
        self._epoll.unregister(connection.socket)
        connection.socket.close()
        if connection in self._idle:
            self._idle.remove(connection)
        self._connect()
