"""Connections of the clients: reuse, their limit, expiry, proxies, and a client that is closed."""

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from spark_client.client.script import CLOSE, Script, reply
from support.running import Service
from support.waiting import WAIT_MAX_S, until
from tableside_client import AsyncClient, Retries, TablesideError
from tableside_client.connections import AsyncConnection, BlockingConnection
from tableside_client.http1 import Request
from tableside_client.http_clients import AsyncConnections, Connections

ONCE = Retries(attempts_max=1)
ONE = reply(b'{"n":1}', b"Content-Type: application/json")


async def test_sequential_calls_use_one_connection(opened: Callable[..., Any], script: Callable[..., Script]) -> None:
    server = script(*[[ONE]] * 20)
    table = (await opened(server.url)).table("t")
    for _ in range(20):
        assert await table.get("a") == {"n": 1}
    assert server.connections == 1


async def test_no_more_connections_are_open_than_allowed(
    opened: Callable[..., Any], script: Callable[..., Script]
) -> None:
    server = script(*[[0.5, ONE]] * 4)
    table = (await opened(server.url, connections_max=3)).table("t")
    assert await asyncio.gather(*(table.get(f"{number}") for number in range(4))) == [{"n": 1}] * 4
    assert (server.connections, len(server.requests)) == (3, 4)


async def test_a_call_without_a_response_releases_its_connection(
    opened: Callable[..., Any], script: Callable[..., Script]
) -> None:
    server = script([5.0, CLOSE], [ONE])
    table = (await opened(server.url, connections_max=1, timeout_s=0.5, retries=ONCE)).table("t")
    with pytest.raises(TablesideError, match="ReadTimeout"):
        await table.get("a")
    assert await table.get("a") == {"n": 1}


async def test_closing_an_asyncio_client_ends_its_calls(script: Callable[..., Script]) -> None:
    server = script([60.0, CLOSE])
    client = AsyncClient(server.url, retries=ONCE)
    call = asyncio.create_task(client.table("t").get("a"))
    await asyncio.to_thread(until, lambda: len(server.requests) == 1)
    await client.close()
    with pytest.raises(TablesideError, match="service_unreachable"):
        await asyncio.wait_for(call, WAIT_MAX_S)


async def test_the_proxy_of_the_environment_is_used(
    opened: Callable[..., Any], script: Callable[..., Script], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = script([ONE])
    monkeypatch.setenv("http_proxy", server.url)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert await (await opened("http://tableside.invalid")).table("t").get("a") == {"n": 1}
    assert server.requests[0].startswith(b"GET http://tableside.invalid/v1/tables/t/records/a ")


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

    asyncio.run(use())
    for call in (get, client.close):
        with pytest.raises(RuntimeError, match="used in another event loop before: create a client in each asyncio"):
            asyncio.run(call())


async def test_an_expired_connection_is_not_used_again(script: Callable[..., Script]) -> None:
    """A load balancer may forget an idle connection without closing it."""
    server = script(*[[ONE]] * 4)
    base, request = httpx.URL(server.url), Request("GET", "/v1/tables/t/records/a")
    blocking = Connections(1, 0.05, lambda: BlockingConnection(base, None))
    for_tasks = AsyncConnections(1, 0.05, lambda: AsyncConnection(base, None))
    for _ in range(2):
        await asyncio.sleep(0.1)
        assert (await asyncio.to_thread(blocking.send, request)).json() == {"n": 1}
        assert (await for_tasks.send(request)).json() == {"n": 1}
    assert server.connections == 4
    blocking.close()
    await for_tasks.close()
