"""The head of a request has a limit in bytes and a timeout."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from support.raw_http import Connection, Unanswered
from support.served import RECORD, Served, served
from support.waiting import WAIT_MAX_S
from tableside.server import connection as protocol


@pytest.fixture
async def service() -> AsyncIterator[Served]:
    async with served(drain_s=0) as one:
        yield one


async def test_an_endless_head_is_rejected_and_ends_the_connection(service: Served) -> None:
    async with await Connection.open(service.url) as connection:
        connection.writer.write(f"GET {RECORD} HTTP/1.1\r\nhost: test\r\n".encode())
        for size in (60_000, 6_000):  # the last piece exceeds the limit
            await asyncio.sleep(0.05)
            connection.writer.write(f"x: {'x' * size}\r\n".encode())
        refused = await connection.answer()
        assert (refused.status, refused.json()["code"], refused.last) == (413, "too_large", True)


async def test_any_number_of_complete_heads_is_served_in_order(service: Served) -> None:
    async with await Connection.open(service.url) as connection:
        for _ in range(20):
            given = {f"x_{number}": "x" * 100 for number in range(60)}
            assert (await connection.ask("GET", RECORD, **given)).status == 404


async def test_a_long_body_before_a_head_in_pieces_does_not_count_as_head(service: Served) -> None:
    async with await Connection.open(service.url) as connection:
        body = b'{"a": "' + b"x" * 200_000 + b'"}'
        head = f"PUT {RECORD} HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\n"
        put = f"{head}content-length: {len(body)}\r\n\r\n".encode() + body
        connection.writer.write(put + put[:20])
        await connection.writer.drain()
        assert (await connection.answer()).status == 204
        connection.writer.write(put[20:])
        assert (await connection.answer()).status == 204


async def test_an_endless_body_of_a_rejected_request_ends_the_connection() -> None:
    async with served(drain_s=0, body_bytes_max=2**18) as service, await Connection.open(service.url) as connection:
        head = b"PUT /v1/tables/none%21/records/a HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n"
        connection.writer.write(head)
        assert (await connection.answer()).status == 422
        async with asyncio.timeout(WAIT_MAX_S):
            with pytest.raises(ConnectionError):
                await send_forever(connection, b"10000\r\n%b\r\n" % bytes(2**16))


async def send_forever(connection: Connection, data: bytes) -> None:
    while True:
        connection.writer.write(data)
        await connection.writer.drain()


async def test_silent_clients_and_incomplete_heads_time_out(service: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEAD_MAX_S", 0.2)
    async with (
        await Connection.open(service.url) as silent,
        await Connection.open(service.url) as slow,
        await Connection.open(service.url) as used,
    ):
        assert (await used.ask("GET", RECORD)).status == 404
        slow.writer.write(f"GET {RECORD} HTT".encode())
        for late in (silent, slow):
            with pytest.raises(Unanswered):
                async with asyncio.timeout(WAIT_MAX_S):
                    await late.answer()
        assert (await used.ask("GET", RECORD)).status == 404, "one that waits between two requests is another matter"
