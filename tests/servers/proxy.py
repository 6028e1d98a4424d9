"""A TCP proxy between a client and a server that simulates network faults, one kind at a time.

Runs in the caller's event loop. The proxy does not parse the protocol: data that arrives together counts as one request
or response.
"""

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from enum import Enum, auto
from typing import Self
from urllib.parse import urlsplit

from .process import HOST

GARBAGE_BYTES = 256
READ_BYTES = 2**18


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
        self.once = False

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
        self._listener = await asyncio.start_server(self._serve, HOST, 0)
        self.port = self._listener.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listener.close()
        self.cut()
        while self.connections:
            await asyncio.sleep(0.001)

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
        self.once = once

    def _switch(self, mode: Mode) -> None:
        self.mode, self.delay_s, self.once = mode, 0.0, False
        for connection in list(self.connections):
            connection.release()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(self, writer)
        self.connections.add(connection)
        self.connections_total += 1
        try:
            await connection.run(reader)
        finally:
            self.connections.discard(connection)


class Connection:
    """A client connection and its connection to the server."""

    def __init__(self, proxy: FaultProxy, client: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._client = client
        self._server: asyncio.StreamWriter | None = None
        self._held: list[tuple[Callable[[bytes], None], bytes]] = []
        self._due = 0.0

    async def run(self, requests: asyncio.StreamReader) -> None:
        """Handle data from the client until it disconnects, and then close the connection to the server."""
        if self._proxy.mode is Mode.CUT:
            self.abort()
        answering = asyncio.create_task(self._answer())
        try:
            with suppress(ConnectionError):
                while data := await requests.read(READ_BYTES):
                    self.requested(data)
        finally:
            answering.cancel()
            for writer in (self._client, self._server):
                if writer is not None:
                    writer.close()

    def requested(self, data: bytes) -> None:
        """Handle data from the client. It is held back if the network hangs or the server is not connected yet."""
        match self._proxy.mode:
            case Mode.GARBAGE:
                self._client.write(os.urandom(GARBAGE_BYTES))
            case Mode.FORWARD | Mode.ANSWER_LOST if self._server is not None:
                self._server.write(data)
            case Mode.HANG | Mode.FORWARD | Mode.ANSWER_LOST:
                self._held.append((self.requested, data))

    def answered(self, data: bytes) -> None:
        """Handle data from the server."""
        match self._proxy.mode:
            case Mode.HANG:
                self._held.append((self.answered, data))
            case Mode.ANSWER_LOST:
                self.abort()
                if self._proxy.once:
                    self._proxy.forward()
            case Mode.FORWARD:
                self._later(lambda: self._client.write(data))

    def release(self) -> None:
        """Handle data that was held back as if it arrived now, responses first."""
        held, self._held = self._held, []
        for handle, data in sorted(held, key=lambda one: one[0] != self.answered):
            handle(data)

    def abort(self) -> None:
        """Break both connections, so that the client sees a reset or a truncated response."""
        for writer in (self._client, self._server):
            if writer is not None:
                writer.transport.abort()

    async def _answer(self) -> None:
        """Connect to the server, send it the data that the client has sent so far, and handle its responses."""
        try:
            answers, self._server = await asyncio.open_connection(*self._proxy.server)
        except OSError:
            self.abort()
            return
        self.release()
        with suppress(ConnectionError):
            while data := await answers.read(READ_BYTES):
                self.answered(data)
        self._later(self._client.close)

    def _later(self, act: Callable[[], None]) -> None:
        """Run an action after the delay, but not before an earlier action."""
        loop = asyncio.get_running_loop()
        if self._proxy.delay_s == 0 and self._due <= loop.time():
            act()
        else:
            self._due = max(self._due + 1e-6, loop.time() + self._proxy.delay_s)
            loop.call_at(self._due, act)


def address(url: str) -> tuple[str, int]:
    """Return the host and the port of a URL that has both."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    return parts.hostname, parts.port
