"""Slow clients are detected, with and without TLS, and receive all of the last response of a connection."""

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Self

import pytest
import uvloop

from support.certificates import Authority
from tableside.app import create_app
from tableside.server.connection import HttpConnection
from tableside.server.response_sender import UnreadResponses
from tableside.server.server import ListenAddress, Server, ServerConfig
from tableside.server.tls import TlsFiles
from tableside.settings import validate

VALUE = json.dumps({"v": "x" * 1_000_000}).encode()
ANSWER_BYTES_MIN = 16_000_000
READ = json.dumps({"operations": [{"op": "get", "key": "a"}] * 16}).encode()

Encryption = tuple[TlsFiles, ssl.SSLContext] | None
Test = Callable[..., Coroutine[Any, Any, None]]


def in_both_loops(test: Test) -> Callable[..., None]:
    """Run a test in asyncio's event loop and in uvloop, which the service uses."""

    @pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
    def run(tls: Encryption, loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
        with asyncio.Runner(loop_factory=loop) as runner:
            runner.run(test(tls))

    run.__name__ = test.__name__
    return run


@asynccontextmanager
async def serving(tls: TlsFiles | None) -> AsyncIterator[Server]:
    """Run the service with a record of 1 MB."""
    settings = validate(
        {
            "stores": {"s": {"kind": "memory"}},
            "tables": {"t": {"store": "s"}},
            "console": {"enabled": False},
            "limits": {"drain_s": 0},
        }
    )
    server = Server(ServerConfig(create_app(settings), settings.limits, ListenAddress("127.0.0.1", 0, None, tls)))
    task = asyncio.create_task(server.serve())
    try:
        while not server.started:
            await asyncio.sleep(0.01)
        yield server
    finally:
        server.should_exit = True
        await task


class Slow:
    """A client that reads only on request of the test."""

    def __init__(self, server: Server, context: ssl.SSLContext | None) -> None:
        self._port = server.servers[0].sockets[0].getsockname()[1]
        self._context = context

    async def __aenter__(self) -> Self:
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", self._port))
        host = None if self._context is None else "localhost"
        opened = asyncio.open_connection(sock=connection, ssl=self._context, server_hostname=host, limit=65_536)
        self.reader, self.writer = await opened
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.transport.abort()

    def ask(self, method: str, path: str, body: bytes, more: str = "") -> None:
        head = f"{method} /v1/tables/t/{path} HTTP/1.1\r\nHost: localhost\r\ncontent-length: {len(body)}\r\n{more}\r\n"
        self.writer.write(head.encode() + body)

    async def answer(self) -> bytes:
        """Return the body of the next response."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).lower()
        length = next((line for line in head.split(b"\r\n") if line.startswith(b"content-length: ")), b": 0")
        return await self.reader.readexactly(int(length.partition(b": ")[2]))


async def unread(server: Server) -> int:
    """Return the number of unread bytes, once it no longer changes."""
    before, now = -1, 0
    while before != now or not now:
        await asyncio.sleep(0.15)
        [connection] = list(server.server_state.connections)
        assert isinstance(connection, HttpConnection)
        before, now = now, connection.sender.unread_bytes
    return now


@pytest.fixture(params=["plain", "tls"])
def tls(request: pytest.FixtureRequest, tmp_path: Path) -> Encryption:
    if request.param == "plain":
        return None
    authority = Authority(tmp_path)
    signed = authority.sign("server")
    return TlsFiles(signed.certificate, signed.key), authority.trusting()


@in_both_loops
async def test_the_unread_bytes_of_a_response_are_counted(tls: Encryption) -> None:
    certificate, context = tls or (None, None)
    async with serving(certificate) as server, Slow(server, context) as caller:
        caller.ask("PUT", "records/a", VALUE, "content-type: application/json\r\n")
        await caller.answer()
        caller.ask("POST", "batch", READ, "content-type: application/json\r\n")
        caller.ask("GET", "records/a", b"")
        waiting = await unread(server)
        assert waiting > ANSWER_BYTES_MIN / 2, "the rest is in the kernel"
        assert waiting < ANSWER_BYTES_MIN, "the second answer is not made yet"
        [connection] = list(server.server_state.connections)
        assert isinstance(connection, HttpConnection)
        now = asyncio.get_running_loop().time()
        assert connection.sender.held_bytes >= waiting
        assert not connection.is_late(now)
        assert connection.is_late(now + 31)
        results = json.loads(await caller.answer())["results"]
        assert [result["value"] == json.loads(VALUE) for result in results] == [True] * 16
        assert json.loads(await caller.answer()) == json.loads(VALUE)
        assert connection.sender.held_bytes == 0


@in_both_loops
async def test_unread_responses_never_exceed_their_limit_and_a_reader_gets_its_response(tls: Encryption) -> None:
    bytes_max = 3 * ANSWER_BYTES_MIN
    certificate, context = tls or (None, None)
    async with serving(certificate) as server, AsyncExitStack() as stack:
        server.server_state.unread = UnreadResponses(bytes_max)
        callers = [await stack.enter_async_context(Slow(server, context)) for _ in range(8)]
        callers[0].ask("PUT", "records/a", VALUE, "content-type: application/json\r\n")
        await callers[0].answer()
        for caller in callers[:-1]:
            caller.ask("POST", "batch", READ, "content-type: application/json\r\n")
            await asyncio.sleep(0.05)
            assert unread_total(server) <= bytes_max
        callers[-1].ask("POST", "batch", READ, "content-type: application/json\r\n")
        assert len(await callers[-1].answer()) > ANSWER_BYTES_MIN
        assert unread_total(server) <= bytes_max
        assert len(server.server_state.connections) < len(callers), "the slowest are disconnected"


def unread_total(server: Server) -> int:
    connections = [one for one in server.server_state.connections if isinstance(one, HttpConnection)]
    return sum(one.sender.unread_bytes for one in connections if not one.transport.is_closing())
