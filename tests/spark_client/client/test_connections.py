"""Connections of the clients: reuse, their limit, expiry, proxies, and a client that is closed."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest
import uvloop

from support.running import Service
from support.waiting import WAIT_MAX_S, until
from tableside_client import AsyncClient, Retries, TablesideError
from tableside_client.connections import AsyncConnection, BlockingConnection
from tableside_client.http1 import Request
from tableside_client.http_clients import AsyncConnections, Connections, FreeConnections


class Recorder(ThreadingHTTPServer):
    """Answers every request with a record, while it is allowed to, and counts connections and requests in flight."""

    daemon_threads = True

    def __init__(self) -> None:
        self.connections = self.in_flight = self.in_flight_max = 0
        self.paths: list[str] = []
        self.lock = threading.Lock()
        self.answer = threading.Event()
        self.answer.set()
        super().__init__(("127.0.0.1", 0), Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.connections += 1
        super().process_request(request, client_address)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Recorder

    def do_GET(self) -> None:
        with self.server.lock:
            self.server.paths.append(self.path)
            self.server.in_flight += 1
            self.server.in_flight_max = max(self.server.in_flight_max, self.server.in_flight)
        self.server.answer.wait(60)
        with self.server.lock:
            self.server.in_flight -= 1
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", "7")
        self.end_headers()
        self.wfile.write(b'{"n":1}')

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    server = Recorder()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.answer.set()
    server.shutdown()
    thread.join()
    server.server_close()


async def test_sequential_calls_use_one_connection(opened: Callable[..., Any], recorder: Recorder) -> None:
    table = (await opened(recorder.url)).table("t")
    for _ in range(20):
        assert await table.get("a") == {"n": 1}
    assert recorder.connections == 1


async def test_no_more_connections_are_open_than_allowed(opened: Callable[..., Any], recorder: Recorder) -> None:
    table = (await opened(recorder.url, connections_max=3)).table("t")
    recorder.answer.clear()
    calls = [asyncio.create_task(table.get(f"{number}")) for number in range(4)]
    await asyncio.to_thread(until, lambda: recorder.in_flight == 3)
    recorder.answer.set()
    assert await asyncio.gather(*calls) == [{"n": 1}] * 4
    assert (recorder.connections, recorder.in_flight_max, len(recorder.paths)) == (3, 3, 4)


async def test_a_call_without_a_response_releases_its_connection(
    opened: Callable[..., Any], recorder: Recorder
) -> None:
    options = {"connections_max": 1, "timeout_s": 0.2, "retries": Retries(attempts_max=1)}
    table = (await opened(recorder.url, **options)).table("t")
    recorder.answer.clear()
    with pytest.raises(TablesideError, match="ReadTimeout"):
        await table.get("a")
    recorder.answer.set()
    assert await table.get("a") == {"n": 1}


async def test_closing_an_asyncio_client_ends_its_calls(recorder: Recorder) -> None:
    client = AsyncClient(recorder.url, retries=Retries(attempts_max=1))
    recorder.answer.clear()
    call = asyncio.create_task(client.table("t").get("a"))
    await asyncio.to_thread(until, lambda: recorder.in_flight == 1)
    await client.close()
    with pytest.raises(TablesideError, match="service_unreachable"):
        await asyncio.wait_for(call, WAIT_MAX_S)


async def test_the_proxy_of_the_environment_is_used(
    opened: Callable[..., Any], recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", recorder.url)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert await (await opened("http://tableside.invalid")).table("t").get("a") == {"n": 1}
    assert recorder.paths == ["http://tableside.invalid/v1/tables/t/records/a"]


@pytest.mark.server
@pytest.mark.parametrize("coalesce", [False, True])
def test_a_second_event_loop_is_an_error_that_says_so(service: Service, name: str, coalesce: bool) -> None:
    client = AsyncClient(service.url, coalesce=coalesce)
    table = client.table(name)

    async def use() -> None:
        await table.put("a", {"n": 1})
        assert list(await asyncio.gather(table.get("a"), table.get("a"))) == [{"n": 1}] * 2
        await client.close()

    async def get() -> None:
        await table.get("a")

    async def scan() -> None:
        assert [record async for record in table.scan()]

    async def update() -> None:
        await table.update("a", {})

    asyncio.run(use())
    for call in (get, scan, update, client.close):
        with pytest.raises(RuntimeError, match="used in another event loop before: create a client in each asyncio"):
            asyncio.run(call())


@pytest.mark.server
def test_the_event_loop_may_be_that_of_uvloop(service: Service, name: str) -> None:
    async def use() -> None:
        async with AsyncClient(service.url) as client:
            table, value = client.table(name), {"text": "x" * 900_000}
            await table.put("a", value)
            assert await asyncio.gather(*(table.get("a") for _ in range(5))) == [value] * 5

    uvloop.run(use())


async def test_an_expired_connection_is_not_used_again(recorder: Recorder) -> None:
    """A load balancer may forget an idle connection without closing it."""
    base, request = httpx.URL(recorder.url), Request("GET", "/v1/tables/t/records/a")
    blocking = Connections(1, 0.05, lambda: BlockingConnection(base, None))
    for_tasks = AsyncConnections(1, 0.05, lambda: AsyncConnection(base, None))
    for _ in range(2):
        await asyncio.sleep(0.1)
        assert (await asyncio.to_thread(blocking.send, request)).json() == {"n": 1}
        assert (await for_tasks.send(request)).json() == {"n": 1}
    assert recorder.connections == 4
    blocking.close()
    await for_tasks.close()


def test_the_connection_that_became_free_last_is_used_and_the_oldest_expires() -> None:
    now_s, names = [0.0], iter("abc")
    connections: FreeConnections[str] = FreeConnections(lambda: next(names), 4.0, lambda: now_s[0])
    taken = [connections.take() for _ in range(3)]
    for name in taken:
        connections.put(name)
        now_s[0] += 1.0
    assert connections.take() == "c"
    assert connections.expired() is None
    now_s[0] = 4.5
    assert connections.expired() == "a"
    assert connections.expired() is None
    assert connections.opened == {"b", "c"}
