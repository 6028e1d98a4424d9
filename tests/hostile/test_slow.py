"""Hundreds of slow clients of all kinds, 2,000 in a full run, do not delay others, and are disconnected."""

import asyncio
import resource
from collections.abc import Callable, Iterator

import psutil
import pytest

from hostile.slow_callers import SlowCallers
from support.raw_http import Connection
from support.served import RECORD, Served, served
from support.waiting import WAIT_MAX_S
from tableside.http import middleware
from tableside.server import connection as protocol, response_sender, server

pytestmark = pytest.mark.server

CALLERS = {"silent": 90, "head": 90, "body": 110, "unread": 10, "idle": 100}
FULL_FACTOR = 5
LARGE = f"{RECORD}-large"
LARGE_BYTES = 6_000_000
"""More than the kernel buffers for a socket whose client does not read."""

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
    slow = {name: count * (FULL_FACTOR if full else 1) for name, count in CALLERS.items()}
    in_flight_max = slow["body"] + slow["unread"]
    async with served(in_flight_max=in_flight_max, value_bytes_max=2 * LARGE_BYTES, drain_s=0) as service:
        async with await Connection.open(service.url) as caller:
            assert (await caller.ask("PUT", LARGE, {"a": "x" * LARGE_BYTES})).status == 204
        await service.idle()
        process = psutil.Process()
        before = process.num_fds()
        callers = await asyncio.to_thread(SlowCallers, service.url, LARGE, slow)
        try:
            answered = await work_until(service, lambda: process.num_fds() <= before + sum(slow.values()) + 2 * OTHERS)
        finally:
            await asyncio.to_thread(callers.close)
        assert answered > 100
        assert service.metric("tableside_shed_total", reason="requests") == 0
        await service.idle()
        await asyncio.sleep(0.1)
        assert process.num_fds() <= before


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
        async with asyncio.timeout(WAIT_MAX_S):
            await asyncio.sleep(1.0)
            while not done():
                await asyncio.sleep(0.2)
        over.set()
    return sum(counts)
