"""A TCP proxy between a client and a server that simulates network faults, one kind at a time.

Runs in the caller's event loop. The proxy does not parse the protocol: data that arrives together counts as one request
or response.
"""

import asyncio
import os
from collections.abc import Callable
from enum import Enum, auto
from typing import Self
from urllib.parse import urlsplit

from .process import HOST

GARBAGE_BYTES = 256


class Mode(Enum):
    """How the proxy treats connections and their data."""

    FORWARD = auto()
    CUT = auto()
    HANG = auto()
    GARBAGE = auto()
    ANSWER_LOST = auto()


class FaultProxy:
    """Listens on `port`, a free port of the loopback interface, and forwards everything until a fault is set."""

    def __init__(self, host: str, port: int) -> None:
        self.port = 0
        self.server = (host, port)
        self.mode = Mode.FORWARD
        self.delay_s = 0.0
        self.connections: set[Connection] = set()
        self.connections_total = 0
        self._once = False
        self._empty = asyncio.Event()
        self._empty.set()

    @classmethod
    def before(cls, url: str) -> Self:
        """Return a proxy in front of the server of a URL."""
        return cls(*address(url))

    def through(self, url: str) -> str:
        """Return the URL of the server with the address of the proxy."""
        return url.replace(urlsplit(url).netloc.rpartition("@")[2], f"{HOST}:{self.port}")

    @property
    def open_connections(self) -> int:
        """The number of open client connections. `connections_total` counts all of them since the start."""
        return len(self.connections)

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(lambda: _Client(Connection(self)), HOST, 0)
        self.port = self._listener.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listener.close()
        self.cut()
        await self._empty.wait()
        await self._listener.wait_closed()

    def forward(self) -> None:
        """End the fault, and forward data that was held back."""
        self._switch(Mode.FORWARD)

    def delay(self, seconds: float) -> None:
        """Forward everything, but delay each response."""
        self._switch(Mode.FORWARD)
        self.delay_s = seconds

    def cut(self) -> None:
        """Break all connections now, and new connections immediately."""
        self._switch(Mode.CUT)
        for connection in list(self.connections):
            connection.abort()

    def hang(self) -> None:
        """Keep connections and accept new ones, but hold back all data in both directions."""
        self._switch(Mode.HANG)

    def garbage(self) -> None:
        """Answer each request with random bytes instead of forwarding it."""
        self._switch(Mode.GARBAGE)

    def answer_lost(self, *, once: bool = False) -> None:
        """Forward requests, but break the connection instead of forwarding the response: the request took effect.

        With `once`, end the fault after the first lost response.
        """
        self._switch(Mode.ANSWER_LOST)
        self._once = once

    def opened(self, connection: "Connection") -> None:
        """Register a client connection."""
        self.connections.add(connection)
        self.connections_total += 1
        self._empty.clear()

    def closed(self, connection: "Connection") -> None:
        """Unregister a closed client connection."""
        self.connections.discard(connection)
        if not self.connections:
            self._empty.set()

    def lost(self) -> None:
        """Record a lost response."""
        if self._once:
            self.forward()

    def _switch(self, mode: Mode) -> None:
        self.mode, self.delay_s, self._once = mode, 0.0, False
        for connection in list(self.connections):
            connection.release()


class Connection:
    """A client connection and its connection to the server."""

    def __init__(self, proxy: FaultProxy) -> None:
        self._proxy = proxy
        self._client: asyncio.Transport | None = None
        self._server: asyncio.Transport | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._requests: list[bytes] = []  # held back: the network hangs, or the server is not connected yet
        self._answers: list[bytes] = []
        self._due = 0.0

    def opened(self, client: asyncio.Transport) -> None:
        """Handle a new client connection."""
        self._client = client
        self._proxy.opened(self)
        if self._proxy.mode is Mode.CUT:
            self.abort()
        else:
            self._connecting = asyncio.create_task(self._connect())

    def requested(self, data: bytes) -> None:
        """Handle data from the client."""
        match self._proxy.mode:
            case Mode.HANG:
                self._requests.append(data)
            case Mode.GARBAGE:
                self._write(self._client, os.urandom(GARBAGE_BYTES))
            case Mode.FORWARD | Mode.ANSWER_LOST if self._server is None:
                self._requests.append(data)
            case Mode.FORWARD | Mode.ANSWER_LOST:
                self._write(self._server, data)
            case Mode.CUT:
                pass

    def answered(self, data: bytes) -> None:
        """Handle data from the server."""
        match self._proxy.mode:
            case Mode.HANG:
                self._answers.append(data)
            case Mode.ANSWER_LOST:
                self.abort()
                self._proxy.lost()
            case Mode.FORWARD:
                self._later(lambda: self._write(self._client, data))
            case Mode.GARBAGE | Mode.CUT:
                pass

    def release(self) -> None:
        """Handle data that was held back as if it arrived now."""
        requests, self._requests = self._requests, []
        answers, self._answers = self._answers, []
        for data in answers:
            self.answered(data)
        for data in requests:
            self.requested(data)

    def abort(self) -> None:
        """Break both connections, so that the client sees a reset or a truncated response."""
        for transport in (self._client, self._server):
            if transport is not None:
                transport.abort()

    def client_left(self) -> None:
        """Close the server connection after sending all data, because the client has disconnected."""
        self._proxy.closed(self)
        if self._connecting is not None:
            self._connecting.cancel()
        if self._server is not None:
            self._server.close()

    def server_left(self) -> None:
        """Close the client connection after sending all data, because the server has disconnected."""
        if self._client is not None:
            self._later(self._client.close)

    async def _connect(self) -> None:
        """Connect to the server, and send it the data that the client has sent so far."""
        assert self._client is not None
        try:
            self._server, _ = await asyncio.get_running_loop().create_connection(
                lambda: _Server(self), *self._proxy.server
            )
        except OSError:
            self._client.abort()
        else:
            self.release()

    def _later(self, act: Callable[[], None]) -> None:
        """Run an action after the delay, but not before an earlier action."""
        loop = asyncio.get_running_loop()
        if self._proxy.delay_s == 0 and self._due <= loop.time():
            act()
        else:
            self._due = max(self._due + 1e-6, loop.time() + self._proxy.delay_s)
            loop.call_at(self._due, act)

    def _write(self, transport: asyncio.Transport | None, data: bytes) -> None:
        if transport is not None and not transport.is_closing():
            transport.write(data)


def address(url: str) -> tuple[str, int]:
    """Return the host and the port of a URL that has both."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    return parts.hostname, parts.port


class _Client(asyncio.Protocol):
    """The asyncio protocol of the client connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._connection.opened(transport)

    def data_received(self, data: bytes) -> None:
        self._connection.requested(data)

    def connection_lost(self, _: Exception | None) -> None:
        self._connection.client_left()


class _Server(asyncio.Protocol):
    """The asyncio protocol of the server connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def data_received(self, data: bytes) -> None:
        self._connection.answered(data)

    def connection_lost(self, _: Exception | None) -> None:
        self._connection.server_left()
