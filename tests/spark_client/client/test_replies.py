"""Replies of a server that a test scripts byte by byte: valid ones in every form, faulty ones, and unrequested ones."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from spark_client.client.script import CLOSE, Script, Step, reply
from support.waiting import until
from tableside_client import AsyncClient, Retries, TablesideError

ONCE = Retries(attempts_max=1)
ONE, TWO = (reply(b'{"n":%d}' % number) for number in (1, 2))
CHUNKED = b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\n{"n\r\n4\r\n":1}\r\n0\r\nTrailer: x\r\n\r\n'


@pytest.mark.parametrize(
    ("steps", "connections"),
    [
        pytest.param([CHUNKED], 1, id="chunks with an extension and a trailer"),
        pytest.param([bytes([byte]) for byte in CHUNKED], 1, id="single bytes"),
        pytest.param([b'HTTP/1.1 200 OK\r\n\r\n{"n":1}', CLOSE], 2, id="a body that ends with the connection"),
        pytest.param([b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n" + ONE], 1, id="informational"),
        pytest.param([reply(b'{"n":1}', b"Connection: close"), CLOSE], 2, id="the last one of a connection"),
        pytest.param([ONE[:9], 0.3, ONE[9:50], 0.3, ONE[50:]], 1, id="slower in total than the timeout"),
        pytest.param([ONE + TWO], 2, id="with an unrequested one in the same segment"),
        pytest.param([ONE, 0.05, TWO], 2, id="with an unrequested one later"),
        pytest.param([ONE, 0.05, CLOSE], 2, id="before the server closes the idle connection"),
    ],
)
async def test_each_call_gets_its_own_reply(
    opened: Callable[..., Any], script: Callable[..., Script], steps: Sequence[Step], connections: int
) -> None:
    server = script(steps, [TWO])
    table = (await opened(server.url, timeout_s=0.5, retries=ONCE)).table("t")
    assert await table.get("a") == {"n": 1}
    await asyncio.sleep(0.1)
    assert await table.get("b") == {"n": 2}
    assert (server.connections, len(server.requests)) == (connections, 2)


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([CLOSE], "RemoteProtocolError: Server disconnected without sending a response"),
        ([ONE[:-1], CLOSE], "RemoteProtocolError: peer closed connection without sending complete message body"),
        ([b"SSH-2.0-OpenSSH\r\n\r\n"], "RemoteProtocolError: illegal status line"),
        ([b"HTTP/1.1 200 OK\r\nA: " + b"x" * 100_000], "RemoteProtocolError"),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}"], "RemoteProtocolError"),
        ([reply(b"{}", b"Content-Encoding: gzip")], "RemoteProtocolError: the body is compressed"),
        ([ONE[:-1]], "ReadTimeout"),
    ],
)
async def test_a_reply_that_is_not_complete_and_valid_is_an_error_and_ends_the_connection(
    opened: Callable[..., Any], script: Callable[..., Script], steps: Sequence[Step], message: str
) -> None:
    server = script(steps, [TWO])
    table = (await opened(server.url, timeout_s=0.5, retries=ONCE)).table("t")
    with pytest.raises(TablesideError, match=message) as failed:
        await table.update("a", {"n": 1})
    assert (failed.value.code, failed.value.applied, failed.value.retriable) == ("service_unreachable", "unknown", True)
    assert await table.get("b") == {"n": 2}
    assert server.connections == 2


async def test_a_service_that_does_not_read_a_long_request_is_a_timeout(
    opened: Callable[..., Any], script: Callable[..., Script]
) -> None:
    table = (await opened(script([60.0, CLOSE]).url, timeout_s=0.3, retries=ONCE)).table("t")
    with pytest.raises(TablesideError, match="Timeout"):
        await asyncio.wait_for(table.put("a", {"text": "x" * 16_000_000}), 30)


async def test_the_reply_to_a_cancelled_call_is_not_that_of_the_next(script: Callable[..., Script]) -> None:
    server = script([0.2, ONE], [TWO])
    async with AsyncClient(server.url, connections_max=1) as client:
        call = asyncio.create_task(client.table("t").get("a"))
        await asyncio.to_thread(until, lambda: len(server.requests) == 1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert await client.table("t").get("b") == {"n": 2}
    assert server.connections == 2


async def test_a_call_of_a_closed_client_is_an_error(opened: Callable[..., Any], script: Callable[..., Script]) -> None:
    server = script([ONE])
    client = await opened(server.url)
    assert await client.table("t").get("a") == {"n": 1}
    await client.close()
    with pytest.raises(RuntimeError, match="closed"):
        await client.table("t").get("a")
    assert server.connections == 1
