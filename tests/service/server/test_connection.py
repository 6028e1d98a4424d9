"""Bytes sent on a connection: a small response in one write, responses in order, and only valid HTTP."""

import asyncio
from typing import Any, cast

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn import Config

from support.waiting import WAIT_MAX_S
from tableside.http import BODY_BYTES_MAX_KEY
from tableside.server.connection import HttpConnection
from tableside.server.exchange import SharedState
from tableside.server.response_sender import PIECE_BYTES, TURN_BYTES

GET = b"GET /%b HTTP/1.1\r\nhost: test\r\n\r\n"
ALWAYS = b"cache-control: no-cache\r\nx-content-type-options: nosniff\r\n"
IDLE_S = 75


class Recorder:
    """A transport that records writes and the close."""

    def __init__(self) -> None:
        self.done: list[bytes | str] = []
        self.unread = 0
        self.reading = True

    def set_write_buffer_limits(self, high: int, low: int) -> None: ...

    def get_write_buffer_size(self) -> int:
        return self.unread

    def write(self, data: bytes) -> None:
        self.done.append(data)

    def close(self) -> None:
        self.done.append("closed")

    def abort(self) -> None:
        self.done.append("aborted")

    def is_closing(self) -> bool:
        return "closed" in self.done

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


def connected(app: ASGIApp, state: dict[str, Any] | None = None) -> tuple[Recorder, HttpConnection]:
    config = Config(app, log_config=None, access_log=False, lifespan="off", timeout_keep_alive=IDLE_S)
    config.load()
    recorder, protocol = Recorder(), HttpConnection(config, SharedState(), state or {})
    protocol.connection_made(cast("asyncio.Transport", recorder))
    return recorder, protocol


def answering(*bodies: bytes, status: int = 200, headers: list[tuple[bytes, bytes]] | None = None) -> ASGIApp:
    """Return an application that sends a body in these parts, by default with a Content-Length."""
    given = [(b"content-length", b"%d" % len(b"".join(bodies)))] if headers is None else headers

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": status, "headers": given})
        for number, body in enumerate(bodies, 1):
            await send({"type": "http.response.body", "body": body, "more_body": number < len(bodies)})

    return app


async def answered(recorder: Recorder, protocol: HttpConnection, request: bytes = GET % b"") -> list[bytes | str]:
    """Deliver a request, and return the writes on the transport."""
    recorder.done.clear()
    protocol.data_received(request)
    await finished(protocol)
    return recorder.done


async def finished(protocol: HttpConnection) -> None:
    """Wait until the application has processed all requests."""
    while protocol.server_state.tasks:
        await asyncio.wait([*protocol.server_state.tasks])
        await asyncio.sleep(0)


def fills_up(recorder: Recorder, protocol: HttpConnection, bytes_max: int = 0) -> None:
    """Pause the writer whenever the transport has received so many bytes."""
    write = recorder.write

    def write_until_full(data: bytes) -> None:
        write(data)
        if sum(map(len, recorder.done)) >= bytes_max:
            protocol.pause_writing()

    recorder.write = write_until_full  # type: ignore[method-assign]


def statuses(done: list[bytes | str]) -> list[bytes | str]:
    """Return the status of each response, and the end of the connection."""
    return [one[9:12] if isinstance(one, bytes) else one for one in done]


async def test_a_request_whose_client_disconnected_before_its_start_is_not_served() -> None:
    served: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        served.append(scope)

    recorder, protocol = connected(app)
    protocol.data_received(GET % b"")
    protocol.connection_lost(None)
    while protocol.server_state.tasks:
        await asyncio.sleep(0)
    assert (served, recorder.done) == ([], ["closed"])


OK = b"HTTP/1.1 200 OK\r\n"
OF_4 = OK + b"content-length: 4\r\n" + ALWAYS
LAST = b"connection: close\r\n\r\n"
ETAG = [(b"etag", b'"1"')]
CACHED = [(b"content-length", b"0"), (b"cache-control", b"max-age=9")]
NOT_SNIFFED = b"x-content-type-options: nosniff\r\n\r\n"

RESPONSES: dict[str, tuple[ASGIApp, list[bytes | str]]] = {
    "in one write": (answering(b"body"), [OF_4 + b"\r\nbody"]),
    "in parts": (answering(b"bo", b"d", b"y"), [OF_4 + b"\r\nbo", b"d", b"y"]),
    "in parts without a length": (
        answering(b"one", b"two", headers=[]),
        [OK + ALWAYS + LAST + b"one", b"two", "closed"],
    ),
    "in one part without a length": (
        answering(b"body", headers=[]),
        [OK + ALWAYS + b"content-length: 4\r\n\r\nbody"],
    ),
    "204": (
        answering(b"", status=204, headers=ETAG),
        [b'HTTP/1.1 204 No Content\r\netag: "1"\r\n' + ALWAYS + b"\r\n"],
    ),
    "304": (
        answering(b"", status=304, headers=ETAG),
        [b'HTTP/1.1 304 Not Modified\r\netag: "1"\r\n' + ALWAYS + b"\r\n"],
    ),
    "with cache-control": (
        answering(b"", headers=CACHED),
        [OK + b"content-length: 0\r\ncache-control: max-age=9\r\n" + NOT_SNIFFED],
    ),
    # A client recognizes a body that ends early. One that is too long is not sent, because its end would look like
    # the next response.
    "too short": (
        answering(b"body", headers=[(b"content-length", b"5")]),
        [OK + b"content-length: 5\r\n" + ALWAYS + b"\r\nbody", "closed"],
    ),
    "too long": (answering(b"body", headers=[(b"content-length", b"3")]), ["closed"]),
    **{
        f"with {value!r} in a header": (
            answering(b"", headers=[(b"content-length", b"0"), (b"etag", value)]),
            ["closed"],
        )
        for value in (b"a\r\nset-cookie: b", b"a\0", b"a\x7f")
    },
}


@pytest.mark.parametrize("case", RESPONSES)
async def test_a_response_is_sent_as_valid_http(case: str) -> None:
    app, sent = RESPONSES[case]
    assert await answered(*connected(app)) == sent


@pytest.mark.parametrize("headers", [None, []], ids=["with a length", "without a length"])
async def test_a_part_is_sent_after_the_rest_of_the_part_before_it(headers: list[tuple[bytes, bytes]] | None) -> None:
    first, second = bytes(range(256)) * (3 * PIECE_BYTES // 256), b"second"
    recorder, protocol = connected(answering(first, second, headers=headers))
    fills_up(recorder, protocol)
    protocol.data_received(GET % b"")
    while protocol.server_state.tasks or protocol.sender.unread_bytes:
        await asyncio.sleep(0)
        protocol.resume_writing()
    sent = b"".join(one for one in recorder.done if isinstance(one, bytes | memoryview))
    assert sent.partition(b"\r\n\r\n")[2] == first + second


@pytest.mark.parametrize("parts", [1, 4])
async def test_other_requests_have_a_turn_while_a_response_is_sent_to_a_fast_client(parts: int) -> None:
    body = bytes(range(256)) * (16 * TURN_BYTES // 256)
    recorder, protocol = connected(answering(*[body[at::parts] for at in range(parts)]))
    protocol.data_received(GET % b"")
    sizes = []
    while protocol.server_state.tasks or protocol.sender.unread_bytes:
        before = len(recorder.done)
        await asyncio.sleep(0)
        sizes.append(sum(len(one) for one in recorder.done[before:]))
        assert not protocol.is_late(asyncio.get_running_loop().time())
    assert max(sizes) <= TURN_BYTES + PIECE_BYTES
    sent = b"".join(one for one in recorder.done if isinstance(one, bytes | memoryview))
    assert sent.partition(b"\r\n\r\n")[2] == b"".join(body[at::parts] for at in range(parts))
    protocol.data_received(GET % b"next")
    assert protocol.server_state.tasks


async def test_pipelined_requests_are_answered_in_order() -> None:
    seen: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        for _ in range(3):
            await asyncio.sleep(0)
        seen.append(scope["path"])
        await answering(scope["path"].encode())(scope, receive, send)

    done = await answered(*connected(app), (GET % b"a%20b") + (GET % b"c") + (GET % b"d"))
    assert seen == ["/a b", "/c", "/d"]
    assert [cast("bytes", one).partition(b"\r\n\r\n")[2] for one in done] == [b"/a b", b"/c", b"/d"]


async def test_an_idle_connection_is_late() -> None:
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


# Malformed requests, and the requests before them


@pytest.mark.parametrize("after", [b"\x16\x03\x01\r\n\r\n", b"GET / HTTP/2.0\r\n\r\n", b"x: " + b"y" * 70_000])
async def test_a_request_is_answered_before_malformed_bytes_are_rejected(after: bytes) -> None:
    done = await answered(*connected(answering(b"body")), (GET % b"") + after)
    assert statuses(done) == [b"200", b"400", "closed"]


async def test_a_malformed_body_is_rejected_in_the_order_of_responses() -> None:
    broken = b"PUT / HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\nz\r\n"
    done = await answered(*connected(answering(b"body")), (GET % b"") + broken)
    assert statuses(done) == [b"200", b"400", "closed"]
    recorder, protocol = connected(reading)
    protocol.data_received(broken)
    assert statuses(recorder.done) == [b"400", "closed"]
    await ended(protocol)


async def ended(protocol: HttpConnection) -> None:
    """Close the connection, and wait until all of its tasks have ended."""
    protocol.connection_lost(None)
    async with asyncio.timeout(WAIT_MAX_S):
        while protocol.server_state.tasks:
            await asyncio.sleep(0)


async def reading(scope: Scope, receive: Receive, send: Send) -> None:
    """Respond with the body of the request."""
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body, more = body + message["body"], message["more_body"]
    await answering(body)(scope, receive, send)


@pytest.mark.parametrize("pieces", [1, 2, 1000])
@pytest.mark.parametrize("chunked", [False, True])
async def test_protocol_upgrades_are_ignored(pieces: int, chunked: bool) -> None:
    """Some clients do so by default: the bytes after the head are the body, not another request."""
    upgrade = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n"
    length, body = (
        (b"transfer-encoding: chunked", b"2\r\n{}\r\n0\r\n\r\n") if chunked else (b"content-length: 2", b"{}")
    )
    text = b"PUT /a HTTP/1.1\r\nhost: test\r\n" + upgrade + length + b"\r\n\r\n" + body + (GET % b"")
    recorder, protocol = connected(reading)
    size = -(-len(text) // pieces)
    for at in range(0, len(text), size):
        protocol.data_received(text[at : at + size])
    await finished(protocol)
    answers = [cast("bytes", one) for one in recorder.done]
    assert [(one[9:12], one.partition(b"\r\n\r\n")[2]) for one in answers] == [(b"200", b"{}"), (b"200", b"")]


async def test_a_head_is_limited_in_headers_and_bytes() -> None:
    for headers, status in (
        (b"a:b\r\n" * 127, [b"200"]),
        (b"a:b\r\n" * 128, [b"413", "closed"]),
        (b"a: %b\r\n" % (b"b" * 66_000), [b"413", "closed"]),
    ):
        done = await answered(*connected(answering(b"")), b"GET / HTTP/1.1\r\nhost: test\r\n" + headers + b"\r\n")
        assert statuses(done) == status


async def test_the_number_of_pipelined_requests_is_limited() -> None:
    done = await answered(*connected(answering(b"")), (GET % b"") * 1000)
    assert statuses(done) == [b"200"] * 100 + [b"503", "closed"]


async def test_trailers_are_ignored() -> None:
    seen: list[Any] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await reading(scope, receive, send)
        seen.extend(scope["headers"])

    head = b"PUT / HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n"
    await answered(*connected(app), head + b"0\r\nif-match: x\r\n\r\n")
    assert seen == [(b"host", b"test"), (b"transfer-encoding", b"chunked")]


@pytest.mark.parametrize("spare", [b"1;" + b"x" * 10_000 + b"\r\na\r\n", b"t: " + b"x" * 10_000 + b"\r\n"])
async def test_trailers_and_chunk_extensions_are_limited(spare: bytes) -> None:
    recorder, protocol = connected(reading)
    protocol.data_received(b"PUT / HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n")
    if spare.startswith(b"t"):
        protocol.data_received(b"0\r\n")
    for _ in range(20):
        protocol.data_received(spare)
        await asyncio.sleep(0)
    assert statuses(recorder.done) == [b"413", "closed"]
    await ended(protocol)


@pytest.mark.parametrize("chunked", [False, True])
async def test_the_rest_of_a_rejected_body_is_limited(chunked: bool) -> None:
    framing = b"transfer-encoding: chunked" if chunked else b"content-length: 1000000"
    piece = b"3E8\r\n%b\r\n" % (b"x" * 1000) if chunked else b"x" * 1000
    recorder, protocol = connected(answering(b"", status=404), {BODY_BYTES_MAX_KEY: lambda: 5_000})
    done = await answered(recorder, protocol, b"PUT / HTTP/1.1\r\nhost: test\r\n" + framing + b"\r\n\r\n")
    assert statuses(done) == [b"404"]
    recorder.done.clear()
    for _ in range(10):
        protocol.data_received(piece)
    assert recorder.done == []
    for _ in range(2):
        protocol.data_received(piece)
    assert recorder.done == ["closed"]


# Slow clients


async def test_a_request_starts_only_after_the_previous_response_is_read() -> None:
    recorder, protocol = connected(answering(b"body"))

    def write(data: bytes) -> None:
        recorder.done.append(data)
        recorder.unread += len(data)
        protocol.pause_writing()

    recorder.write = write  # type: ignore[method-assign]  # one that is slow to send
    done = await answered(recorder, protocol, (GET % b"") * 2)
    assert (len(done), recorder.reading) == (1, False)
    recorder.unread = 0
    protocol.resume_writing()
    await asyncio.sleep(0.01)
    assert (len(done), recorder.reading) == (2, False)
    recorder.unread = 0
    protocol.resume_writing()
    assert recorder.reading


async def test_only_clients_that_read_too_slowly_are_late() -> None:
    recorder, protocol = connected(answering(b"body"))
    await answered(recorder, protocol)
    now = asyncio.get_running_loop().time()
    recorder.unread = 1_000_000
    assert not protocol.is_late(now), "from now on it is looked at"
    assert not protocol.is_late(now + 29)
    assert protocol.is_late(now + 31)
    recorder.unread -= 10 * 1024
    assert not protocol.is_late(now + 39)
    assert protocol.is_late(now + 41)
    recorder.unread = 0
    assert not protocol.is_late(now + 42)
    recorder.unread = 1
    assert not protocol.is_late(now + 43)


async def test_bytes_that_are_no_request_do_not_keep_a_connection_alive() -> None:
    recorder, protocol = connected(answering(b"body"))
    put = b"PUT / HTTP/1.1\r\nhost: test\r\ncontent-length: 100\r\n\r\n"
    for rest in (GET % b"" + b"\r\n\r\n", put + b"x"):
        await answered(recorder, protocol, rest)
        protocol.data_received(b"\r\n")
        now = asyncio.get_running_loop().time()
        assert not protocol.is_late(now + IDLE_S - 1)
        assert protocol.is_late(now + IDLE_S + 1)
