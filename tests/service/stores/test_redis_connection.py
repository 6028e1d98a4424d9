"""Replies in any pieces, and servers that send something else than the replies to a request."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from servers.process import HOST
from tableside.core.errors import StoreUnavailable, TableError
from tableside.core.operations import Record
from tableside.stores.redis.connection import Node
from tableside.stores.redis.records import RecordReader
from tableside.stores.redis.scripts import Command
from tableside.stores.redis.servers import Servers
from tableside.stores.redis.settings import RedisSettings, create_servers

pytestmark = pytest.mark.server

PATIENCE_S = 5.0
GETS = [Command(("GET", "a")), Command(("GET", "b")), Command(("GET", "c"))]
REPLIES = [b"one", None, b"two\r\n"]
ANSWER = b"$3\r\none\r\n$-1\r\n$5\r\ntwo\r\n\r\n"

Client = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any]


@asynccontextmanager
async def node(*clients: Client, database: int = 0, connections_max: int = 1) -> AsyncIterator[Node]:
    """Yield the node of a server that serves its first connection by the first function, and so on."""
    async with served(*clients, database=database, connections_max=connections_max) as servers:
        [(only, _)] = await servers.nodes(time.monotonic() + PATIENCE_S)
        yield only


@asynccontextmanager
async def served(*clients: Client, database: int = 0, connections_max: int = 1) -> AsyncIterator[Servers]:
    """Yield a server that serves its first connection by the first function, and so on."""
    waiting = list(clients)
    ended: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ended.append(writer)
        await waiting.pop(0)(reader, writer)
        writer.close()

    server = await asyncio.start_server(serve, HOST, 0)
    port = server.sockets[0].getsockname()[1]
    settings = RedisSettings(url=f"redis://{HOST}:{port}/{database}", connections_max=connections_max)  # type: ignore[arg-type]
    servers = create_servers(settings)
    try:
        yield servers
        assert waiting == [], "fewer connections than expected"
    finally:
        servers.close()
        server.close()
        for writer in ended:
            writer.close()


def answering(*answers: bytes, then: bytes = b"") -> Client:
    """Send an answer to each request in one piece, and `then` after the last."""

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            await reader.readuntil(b"c\r\n")
            writer.write(answer)
        if then:
            await asyncio.sleep(0.02)
            writer.write(then)
        await reader.read()

    return client


def closing(*pieces: bytes) -> Client:
    """Send the pieces after the first request, and close the connection."""

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"c\r\n")
        for piece in pieces:
            writer.write(piece)
            await asyncio.sleep(0.001)

    return client


async def ask(one: Node, *, writes: bool = False) -> list[Any]:
    return await one.run(GETS, time.monotonic() + PATIENCE_S, writes=writes)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 11, len(ANSWER)])
async def test_replies_arrive_in_any_pieces(size: int) -> None:
    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(2):
            await reader.readuntil(b"c\r\n")
            for start in range(0, len(ANSWER), size):
                writer.write(ANSWER[start : start + size])
                await asyncio.sleep(0.001)
        await reader.read()

    async with node(client) as one:
        assert await ask(one) == REPLIES
        assert await ask(one) == REPLIES


async def test_between_large_replies_the_event_loop_runs_other_callbacks() -> None:
    reply = b"$40000\r\n%b\r\n" % bytes(40_000)
    waiting, order = list[asyncio.StreamWriter](), list[str]()

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"c\r\n")
        waiting.append(writer)
        if len(waiting) == 2:
            for each in waiting:
                each.write(reply * 3)
        await reader.read()

    async def ask_and_note(one: Node) -> None:
        await ask(one)
        order.append("replies")
        asyncio.get_running_loop().call_soon(order.append, "other")

    async with node(client, client, connections_max=2) as one:
        await asyncio.gather(ask_and_note(one), ask_and_note(one))
    assert order[:3] == ["replies", "other", "replies"]


@pytest.mark.parametrize("more", [b":4\r\n", b":", b"?"])
async def test_after_more_replies_than_commands_the_connection_is_not_used_again(more: bytes) -> None:
    async with node(answering(ANSWER + more), answering(ANSWER)) as one:
        assert await ask(one) == REPLIES
        assert await ask(one) == REPLIES


async def test_after_unexpected_data_an_idle_connection_is_not_used_again() -> None:
    async with node(answering(ANSWER, then=b"+more\r\n"), answering(ANSWER, ANSWER)) as one:
        assert await ask(one) == REPLIES
        await asyncio.sleep(0.1)
        assert await ask(one) == REPLIES
        assert await ask(one) == REPLIES


@pytest.mark.parametrize("writes", [False, True])
async def test_replies_before_the_connection_broke_are_kept(writes: bool) -> None:
    async with node(closing(ANSWER[:9], ANSWER[9:17])) as one:
        first, second, third = await ask(one, writes=writes)
        assert [first, second] == REPLIES[:2]
        assert isinstance(third, StoreUnavailable)
        assert third.applied == ("unknown" if writes else "no")


async def test_data_that_is_not_of_redis_is_an_error() -> None:
    async with node(answering(ANSWER[:9] + b"HTTP/1.1 400 Bad Request\r\n"), answering(ANSWER)) as one:
        first, *others = await ask(one)
        assert first == REPLIES[0]
        assert {str(each) for each in others if isinstance(each, TableError)} == {
            "the server does not respond like Redis"
        }
        assert await ask(one) == REPLIES


@pytest.mark.parametrize("item", [b":1\r\n", b"*0\r\n", b"-ERR wrong\r\n"])
@pytest.mark.parametrize("count", [20, 200])
async def test_items_that_are_neither_strings_nor_nil_are_an_error(item: bytes, count: int) -> None:
    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"keyspace\r\n")
        writer.write(b"*%d\r\n%b%b$0\r\n\r\n" % (count, b"$2\r\n{}\r\n" * (count - 1), item))
        await reader.read()

    async with served(client) as servers:
        names = [str(number) for number in range(count)]
        outcomes = await RecordReader(servers).get(names, time.monotonic() + PATIENCE_S)
    assert [str(each) for each in outcomes] == ["the server does not respond like Redis"] * count


async def test_the_error_of_a_command_for_one_key_is_the_outcome_of_that_key() -> None:
    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"keyspace\r\n")
        writer.write(b"*1000\r\n%b-MASTERDOWN the link is down\r\n$0\r\n\r\n" % (b"$2\r\n{}\r\n" * 1000))
        await reader.read()

    async with served(client) as servers:
        names = [str(number) for number in range(1001)]
        *others, last = await RecordReader(servers).get(names, time.monotonic() + PATIENCE_S)
    assert [one.value for one in others if isinstance(one, Record)] == [b"{}"] * 1000
    assert isinstance(last, StoreUnavailable)
    assert str(last) != "the server does not respond like Redis"


@pytest.mark.parametrize("answer", [b"+OK\r\n+more\r\n", b"+OK\r\n+mo"])
async def test_data_after_the_answer_to_the_authentication_is_an_error(answer: bytes) -> None:
    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"SELECT\r\n$1\r\n1\r\n")
        writer.write(answer)
        await reader.read()

    async with node(client, database=1) as one:
        assert all(isinstance(reply, StoreUnavailable) for reply in await ask(one))
