"""What leaves on a connection: in one piece where that is cheap, in order always, and nothing that is no HTTP."""

import asyncio
from typing import Any, cast

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn import Config

from tableside.answering import JOINED_BYTES_MAX
from tableside.protocol import Protocol, State

GET = b"GET /%b HTTP/1.1\r\nhost: test\r\n\r\n"
IDLE_S = 75


class Recorder:
    """A transport that only remembers."""

    def __init__(self) -> None:
        self.done: list[bytes | str] = []

    def write(self, data: bytes) -> None:
        self.done.append(data)

    def close(self) -> None:
        self.done.append("closed")

    def is_closing(self) -> bool:
        return "closed" in self.done

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


def connected(app: ASGIApp) -> tuple[Recorder, Protocol]:
    config = Config(app, log_config=None, access_log=False, lifespan="off", timeout_keep_alive=IDLE_S)
    config.load()
    recorder, protocol = Recorder(), Protocol(config, State(), {})
    protocol.connection_made(cast("asyncio.Transport", recorder))
    return recorder, protocol


def answering(*bodies: bytes, status: int = 200, headers: list[tuple[bytes, bytes]] | None = None) -> ASGIApp:
    """Return what answers with a body in such parts, whose length it says unless it is given headers."""
    given = [(b"content-length", b"%d" % len(b"".join(bodies)))] if headers is None else headers

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": status, "headers": given})
        for number, body in enumerate(bodies, 1):
            await send({"type": "http.response.body", "body": body, "more_body": number < len(bodies)})

    return app


async def answered(recorder: Recorder, protocol: Protocol, request: bytes = GET % b"") -> list[bytes | str]:
    """Return what is done when a request has come."""
    recorder.done.clear()
    protocol.data_received(request)
    while protocol.server_state.tasks:
        await asyncio.wait([*protocol.server_state.tasks])
        await asyncio.sleep(0)
    return recorder.done


async def test_head_and_body_leave_in_one_piece() -> None:
    recorder, protocol = connected(answering(b"body"))
    for _ in range(2):
        done = await answered(recorder, protocol)
        assert done == [b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nbody"]


async def test_a_long_body_is_not_copied() -> None:
    long = b"x" * (JOINED_BYTES_MAX + 1)
    done = await answered(*connected(answering(long)))
    assert done == [b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(long), long]
    assert done[1] is long


async def test_an_answer_in_parts_leaves_in_order() -> None:
    done = await answered(*connected(answering(b"one", b"two", b"three")))
    assert b"".join(cast("list[bytes]", done)) == b"HTTP/1.1 200 OK\r\ncontent-length: 11\r\n\r\nonetwothree"


async def test_an_answer_whose_length_is_not_said_is_in_chunks() -> None:
    done = await answered(*connected(answering(b"one", b"two", headers=[])))
    expected = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"
    assert b"".join(cast("list[bytes]", done)) == expected


@pytest.mark.parametrize("status", [204, 304])
async def test_an_answer_that_has_no_body_says_no_length(status: int) -> None:
    [head] = await answered(*connected(answering(b"", status=status, headers=[(b"etag", b'"1"')])))
    assert isinstance(head, bytes)
    assert head.endswith(b'\r\netag: "1"\r\n\r\n')
    assert b"transfer-encoding" not in head


async def test_the_answer_to_head_is_that_to_get_without_its_body() -> None:
    done = await answered(*connected(answering(b"body")), (GET % b"").replace(b"GET", b"HEAD"))
    assert done == [b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n"]


async def test_the_last_answer_says_so() -> None:
    request = (GET % b"").replace(b"host", b"connection: close\r\nhost")
    done = await answered(*connected(answering(b"body")), request)
    assert done == [b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\nconnection: close\r\n\r\nbody", "closed"]
    done = await answered(
        *connected(answering(b"body", headers=[(b"connection", b"close"), (b"Content-Length", b"4")]))
    )
    assert done == [b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 4\r\n\r\n", b"body", "closed"]


@pytest.mark.parametrize("value", [b"a\r\nset-cookie: b", b"a\0", b"a\x7f"])
async def test_a_header_that_would_be_two_never_leaves(value: bytes) -> None:
    done = await answered(*connected(answering(b"", headers=[(b"content-length", b"0"), (b"etag", value)])))
    assert not any(value in one for one in done if isinstance(one, bytes))
    assert done[-1] == "closed"


@pytest.mark.parametrize("said", [3, 5])
async def test_a_body_that_is_not_as_long_as_was_said_ends_the_connection(said: int) -> None:
    done = await answered(*connected(answering(b"body", headers=[(b"content-length", b"%d" % said)])))
    assert done == ["closed"]


async def test_requests_that_come_together_are_answered_one_after_the_other() -> None:
    seen: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        for _ in range(3):
            await asyncio.sleep(0)
        seen.append(scope["path"])
        await answering(scope["path"].encode())(scope, receive, send)

    done = await answered(*connected(app), (GET % b"a%20b") + (GET % b"c") + (GET % b"d"))
    assert seen == ["/a b", "/c", "/d"]
    assert [cast("bytes", one).partition(b"\r\n\r\n")[2] for one in done] == [b"/a b", b"/c", b"/d"]


async def test_a_connection_is_late_that_was_not_used_for_long() -> None:
    recorder, protocol = connected(answering(b"body"))
    await answered(recorder, protocol)
    now = asyncio.get_running_loop().time()
    assert not protocol.is_late(now + IDLE_S - 1)
    assert protocol.is_late(now + IDLE_S + 1)
    waiting = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await waiting.wait()

    _, busy = connected(app)
    busy.data_received(GET % b"")
    assert not busy.is_late(now + 10 * IDLE_S), "it is answered whenever it is"
    for task in busy.server_state.tasks:
        task.cancel()
