"""Hundreds of slow clients of all kinds, 2,000 in a full run, do not delay others, and are disconnected."""

import asyncio
import contextlib
import resource
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from urllib.parse import urlsplit

import psutil
import pytest

from support.raw_http import Connection
from support.served import RECORD, Served, served
from support.waiting import WAIT_MAX_S, eventually
from tableside.http import middleware
from tableside.server import connection as protocol, response_sender, server

pytestmark = pytest.mark.server

LARGE = f"{RECORD}-large"
LARGE_BYTES = 6_000_000
"""More than the kernel buffers for a socket whose client does not read."""

HEAD = "HTTP/1.1\r\nhost: 127.0.0.1\r\n"
SLOW = {
    "silent": (90, ""),
    "head": (90, f"GET {LARGE} {HEAD}x: "),
    "body": (110, f"PUT {LARGE}-written {HEAD}content-length: 100000\r\n\r\n"),
    "unread": (10, f"GET {LARGE} {HEAD}\r\n" * 2),
    "idle": (100, f"GET /livez {HEAD}\r\n"),
}
"""The number of clients of each kind, and what they send. Those of `head` and `body` then send a byte per second."""

FULL_FACTOR = 5
BOUND_S = 2.0
FULL_BOUND_S = 4.0
OTHERS = 8


@pytest.fixture(autouse=True)
def short_bounds(monkeypatch: pytest.MonkeyPatch, full: bool) -> Iterator[None]:
    """Shorten every timeout, and raise the limit on file descriptors."""
    for where, name in (
        (protocol, "HEAD_MAX_S"),
        (middleware, "BODY_TIMEOUT_S"),
        (response_sender, "RESPONSE_WAIT_S"),
        (server, "KEEP_ALIVE_S"),
    ):
        monkeypatch.setattr(where, name, FULL_BOUND_S if full else BOUND_S)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_slow_clients_are_disconnected_while_others_are_served(full: bool) -> None:
    counts = {kind: count * (FULL_FACTOR if full else 1) for kind, (count, _) in SLOW.items()}
    in_flight_max = counts["body"] + counts["unread"]
    async with served(in_flight_max=in_flight_max, value_bytes_max=2 * LARGE_BYTES, drain_s=0) as service:
        async with await Connection.open(service.url) as caller:
            assert (await caller.ask("PUT", LARGE, {"a": "x" * LARGE_BYTES})).status == 204
        await service.idle()
        process = psutil.Process()
        before = process.num_fds()
        async with slow_clients(service.url, counts):
            expected = before + sum(counts.values()) + 2 * OTHERS
            answered = await work_until(service, lambda: process.num_fds() <= expected)
        assert answered > 100
        assert service.metric("tableside_shed_total", reason="requests") == 0
        await service.idle()
        await eventually(lambda: process.num_fds() <= before)


@contextlib.asynccontextmanager
async def slow_clients(url: str, counts: Mapping[str, int]) -> AsyncIterator[None]:
    """Connect slow clients, so many of each kind."""
    address = urlsplit(url)
    with contextlib.ExitStack() as stack:
        sockets = {kind: [stack.enter_context(socket.socket()) for _ in range(counts[kind])] for kind in counts}
        for kind, each in sockets.items():
            for one in each:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                one.connect((address.hostname, address.port))
                one.setblocking(False)
                one.send(SLOW[kind][1].encode())
            await asyncio.sleep(0)
        dripping = asyncio.create_task(drip([*sockets["head"], *sockets["body"]]))
        yield
        dripping.cancel()


async def drip(sockets: list[socket.socket]) -> None:
    """Send a byte per second on each socket."""
    while True:
        for one in sockets:
            with contextlib.suppress(OSError):  # The service has closed the connection.
                one.send(b" ")
            await asyncio.sleep(1 / len(sockets))


async def work_until(service: Served, done: Callable[[], bool]) -> int:
    """Get and put records with several clients until `done` is true. Return the number of responses."""
    counts = [0] * OTHERS

    async def work(index: int) -> None:
        async with await Connection.open(service.url) as connection:
            while not over.is_set():
                method, document = ("PUT", {"n": index}) if counts[index] % 4 == 0 else ("GET", None)
                async with asyncio.timeout(WAIT_MAX_S):
                    answer = await connection.ask(method, f"{RECORD}{index}", document)
                assert answer.status in (200, 204)
                counts[index] += 1
                await asyncio.sleep(0.02)

    over = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for index in range(OTHERS):
            group.create_task(work(index))
        await asyncio.sleep(1.0)
        await eventually(done)
        over.set()
    return sum(counts)
