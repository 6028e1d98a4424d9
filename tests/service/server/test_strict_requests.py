"""The server refuses requests that proxies may read differently, and accepts the requests of common clients."""

import asyncio
import time
from typing import cast

import pytest
from starlette.types import Receive, Scope, Send

from service.server.test_connection import answering, connected, ended, finished, statuses
from tableside.server.request_parser import EMPTY_LINES_MAX, HEAD_BYTES_MAX, RequestParser

HOST = b"host: test\r\n"
CHUNKED = b"PUT /c HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n2\r\n\r\n\r\n2;x=y\r\n{}\r\n0\r\n\r\n"
SIZED = b"PUT /s HTTP/1.1\r\nhost: test\r\ncontent-length: 8\r\n\r\n\r\n\r\n\r\n\r\n"
PLAIN = b"GET /p HTTP/1.1\r\nhost: test\r\n\r\n"


async def served(request: bytes, piece_bytes: int | None = None) -> tuple[list[bytes | str], list[Scope]]:
    """Deliver bytes in one piece or in several. Return the statuses of the responses, and the requests served."""
    scopes: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scopes.append(scope)
        await answering(b"")(scope, receive, send)

    recorder, protocol = connected(app)
    size = piece_bytes or len(request)
    for at in range(0, len(request), size):
        protocol.data_received(request[at : at + size])
    await finished(protocol)
    return [status for status in statuses(recorder.done) if status != "closed"], scopes


MALFORMED = {
    "RTSP": b"GET / RTSP/1.0\r\n" + HOST,
    "ICE": b"SOURCE / ICE/1.0\r\n" + HOST,
    "two spaces before the target": b"GET  / HTTP/1.1\r\n" + HOST,
    "two spaces before the version": b"GET /  HTTP/1.1\r\n" + HOST,
    "a space after the version": b"GET / HTTP/1.1 \r\n" + HOST,
    "a tab": b"GET\t/ HTTP/1.1\r\n" + HOST,
    "no version": b"GET /\r\n" + HOST,
    "a bare LF before": b"\nGET / HTTP/1.1\r\n" + HOST,
    "a bare LF after an empty line": b"\r\n\nGET / HTTP/1.1\r\n" + HOST,
    "a bare LF after the request line": b"GET / HTTP/1.1\n" + HOST,
    "no host": b"GET / HTTP/1.1\r\n",
    "two hosts": b"GET / HTTP/1.1\r\n" + HOST + HOST,
    "two hosts with HTTP/1.0": b"GET / HTTP/1.0\r\n" + HOST + HOST,
    "a fragment": b"GET /a#b HTTP/1.1\r\n" + HOST,
    "a fragment in the query": b"GET /a?b#c HTTP/1.1\r\n" + HOST,
    "another host": b"GET http://other/ HTTP/1.1\r\n" + HOST,
    "another port": b"GET http://test:81/ HTTP/1.1\r\n" + HOST,
    "a user": b"GET http://user@test/ HTTP/1.1\r\n" + HOST,
    "another scheme": b"GET ftp://test/ HTTP/1.1\r\n" + HOST,
    "a broken escape in the path": b"GET /%zz HTTP/1.1\r\n" + HOST,
    "a broken escape in the query": b"GET /a?b=%f HTTP/1.1\r\n" + HOST,
    "no UTF-8 in the path": b"GET /%FF HTTP/1.1\r\n" + HOST,
    "no UTF-8 in the query": b"GET /a?b=%ed%a0%80 HTTP/1.1\r\n" + HOST,
    "raw bytes in the target": "GET /ü HTTP/1.1\r\n".encode() + HOST,
    "a folded header": b"GET / HTTP/1.1\r\n" + HOST + b"a: b\r\n c\r\n",
    "a space before a colon": b"GET / HTTP/1.1\r\n" + HOST + b"content-length : 1\r\n",
    "a header without a colon": b"GET / HTTP/1.1\r\n" + HOST + b"content-length\r\n",
    "a control character": b"GET / HTTP/1.1\r\n" + HOST + b"a: b\0\r\n",
    "a bare LF after a header": b"GET / HTTP/1.1\r\n" + HOST + b"a: b\ncontent-length: 1\r\n",
    "a bare CR in a header": b"GET / HTTP/1.1\r\n" + HOST + b"a: b\rcontent-length: 1\r\n",
    "a signed length": b"PUT / HTTP/1.1\r\n" + HOST + b"content-length: +1\r\n",
    "a list of lengths": b"PUT / HTTP/1.1\r\n" + HOST + b"content-length: 1, 1\r\n",
    "a coding that is not chunked": b"PUT / HTTP/1.1\r\n" + HOST + b"transfer-encoding: chunked, gzip\r\n",
    "a later version": b"GET / HTTP/2.0\r\n" + HOST,
    "an earlier version": b"GET / HTTP/0.9\r\n" + HOST,
    "a tunnel": b"CONNECT a:80 HTTP/1.1\r\n" + HOST,
    "a coding with HTTP/1.0": b"PUT / HTTP/1.0\r\n" + HOST + b"transfer-encoding: chunked\r\n",
    "a length and a coding": b"GET / HTTP/1.1\r\n" + HOST + b"content-length: 1\r\ntransfer-encoding: chunked\r\n",
    "two lengths": b"GET / HTTP/1.1\r\n" + HOST + b"content-length: 1\r\n" * 2,
    "a length of many digits": b"PUT / HTTP/1.1\r\n" + HOST + b"content-length: %b1\r\n" % (b"0" * 20),
    "a length of thousands of digits": b"PUT / HTTP/1.1\r\n" + HOST + b"content-length: %b1\r\n" % (b"0" * 5000),
    "chunked twice": b"PUT / HTTP/1.1\r\n" + HOST + b"transfer-encoding: chunked\r\n" * 2,
}


@pytest.mark.parametrize("before", [b"", PLAIN, SIZED, CHUNKED, b"\r\n"], ids=["", "plain", "sized", "chunked", "CRLF"])
@pytest.mark.parametrize("head", MALFORMED.values(), ids=MALFORMED.keys())
async def test_a_malformed_head_is_rejected_at_any_position(head: bytes, before: bytes) -> None:
    text = before + head + b"\r\n"
    first = [] if before in (b"", b"\r\n") else [b"200"]
    for piece_bytes in (None, 1, 7):
        found, scopes = await served(text, piece_bytes)
        assert found == [*first, b"400"]
        assert len(scopes) == len(first)


LONG = HEAD_BYTES_MAX - 100
SMOOTH_S_MAX = 0.5
"""A pattern that is quadratic in the length of a head takes from 2 to 40 s."""


@pytest.mark.parametrize(
    "head",
    {
        "a method": b"A" * LONG + b" / HTTP/1.1\r\n" + HOST,
        "a target": b"GET /" + b"a" * LONG + b" HTTP/1.2\r\n" + HOST,
        "a target of another form": b"GET " + b"a" * LONG + b" HTTP/1.1\r\n" + HOST,
        "escapes": b"GET /" + b"%41" * (LONG // 3) + b"% HTTP/1.1\r\n" + HOST,
        "a name without a colon": b"GET / HTTP/1.1\r\n" + HOST + b"a" * LONG + b"\r\n",
        "a space before a colon": b"GET / HTTP/1.1\r\n" + HOST + b"a" * LONG + b" :\r\n",
        "a value with a zero": b"GET / HTTP/1.1\r\n" + HOST + b"a:" + b"a" * LONG + b"\0\r\n",
        "blanks with a zero": b"GET / HTTP/1.1\r\n" + HOST + b"a:" + b" \t" * (LONG // 2) + b"\0\r\n",
        "colons with a zero": b"GET / HTTP/1.1\r\n" + HOST + b"a" + b":" * LONG + b"\0\r\n",
        "names after bare LF": b"GET / HTTP/1.1\r\n" + HOST + b"a\n" * (LONG // 2) + b"\r\n",
        "empty headers": b"GET / HTTP/1.1\r\n" + HOST + b"a:\r\n" * (LONG // 4),
        "lengths": b"GET / HTTP/1.1\r\n" + HOST + b"content-length:" + b"1," * (LONG // 2) + b"\r\n",
        "codings": b"GET / HTTP/1.1\r\n" + HOST + b"transfer-encoding:" + b", " * (LONG // 2) + b"\r\n",
    }.items(),
    ids=lambda item: item[0],
)
async def test_a_long_malformed_head_is_rejected_quickly(head: tuple[str, bytes]) -> None:
    started = time.process_time()
    found, scopes = await served(head[1] + b"\r\n")
    assert time.process_time() - started < SMOOTH_S_MAX
    assert found in ([b"400"], [b"413"])
    assert not scopes


@pytest.mark.parametrize(
    "request_text",
    [
        b"GET / HTTP/1.0\r\n\r\n",
        b"OPTIONS / HTTP/1.0\r\n\r\n",
        b"\r\n\r\n" + PLAIN,
        b"GET http://test/a?b=%C3%BC HTTP/1.1\r\n" + HOST + b"\r\n",
        b"GET HTTP://Test:80/ HTTP/1.1\r\n" + HOST + b"\r\n",
        b"GET https://test:443/ HTTP/1.1\r\n" + HOST + b"\r\n",
        b"GET http://test?a HTTP/1.1\r\n" + HOST + b"\r\n",
        b"GET /a%2Fb%20c?d=100%25&e=a+b HTTP/1.1\r\n" + HOST + b"\r\n",
        b"GET //a?b=http://other/ HTTP/1.1\r\nHost: test\r\n\r\n",
    ],
    ids=repr,
)
async def test_common_requests_of_clients_and_proxies_are_served(request_text: bytes) -> None:
    for piece_bytes in (None, 1, 7):
        found, scopes = await served(request_text, piece_bytes)
        assert found == [b"200"]
        assert len(scopes) == 1


@pytest.mark.parametrize("piece_bytes", [None, 1, 2, 3, 7])
async def test_the_empty_lines_before_a_request_are_limited(piece_bytes: int | None) -> None:
    few, many = b"\r\n" * EMPTY_LINES_MAX, b"\r\n" * (EMPTY_LINES_MAX + 1)
    assert (await served(few + PLAIN + few + PLAIN, piece_bytes))[0] == [b"200"] * 2
    assert (await served(few + PLAIN + many, piece_bytes))[0] == [b"200", b"400"]
    assert (await served(many + PLAIN, piece_bytes))[0] == [b"400"]
    assert (await served(many, piece_bytes))[0] == [b"400"]


@pytest.mark.parametrize("piece_bytes", [None, 1, 2, 3, 5, 7, 11, 50])
async def test_a_request_ends_with_its_body(piece_bytes: int | None) -> None:
    found, scopes = await served(CHUNKED + SIZED + PLAIN + CHUNKED + b"\r\n" + PLAIN + SIZED, piece_bytes)
    assert found == [b"200"] * 6
    assert [scope["path"] for scope in scopes] == ["/c", "/s", "/p", "/c", "/p", "/s"]


@pytest.mark.parametrize("text", [b"\r\n\r\n", b"0\r\n\r\n", b"\r\n0\r\n\r\n", b"5\r\n"], ids=repr)
@pytest.mark.parametrize("piece_bytes", [10**6, 1000, 7, 1])
def test_the_content_of_a_chunk_is_not_searched_for_its_end(text: bytes, piece_bytes: int) -> None:
    content, parts, ends = text * 1000, list[bytes](), list[int]()
    parser = RequestParser(lambda head: None, parts.append, lambda: ends.append(len(parts)))
    head = b"PUT /c HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n"
    request = head + b"0%X;a=b\r\n%b\r\n1\r\nx\r\n00\r\na: 0\r\n\r\n" % (len(content), content) + PLAIN
    for at in range(0, len(request), piece_bytes):
        parser.feed(request[at : at + piece_bytes])
    assert b"".join(parts) == content + b"x"
    assert len(parts) <= 3 + len(content) // piece_bytes
    assert ends == [len(parts)] * 2


@pytest.mark.parametrize(
    "chunk",
    [
        *(b"2\n{}\r\n", b"2 \r\n{}\r\n", b"-2\r\n", b"0x2\r\n", b"2\r\n{}}\r\n", b"0\r\na b\r\n"),
        *(b"F" * digits + b"\r\n" for digits in (17, 100)),
    ],
)
@pytest.mark.parametrize("piece_bytes", [None, 1])
async def test_a_malformed_chunk_ends_the_connection(chunk: bytes, piece_bytes: int | None) -> None:
    head = b"PUT /c HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n"
    recorder, protocol = connected(waiting)
    size = piece_bytes or 1000
    for at in range(0, len(head + chunk), size):
        protocol.data_received((head + chunk)[at : at + size])
    assert statuses(recorder.done) == [b"400", "closed"]
    await ended(protocol)


async def waiting(scope: Scope, receive: Receive, send: Send) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def test_an_absolute_target_provides_the_host() -> None:
    _, [scope] = await served(b"GET http://other/ HTTP/1.0\r\n\r\n")
    assert scope["headers"] == [(b"host", b"other")]


@pytest.mark.parametrize(("version", "interim"), [(b"1.0", 0), (b"1.1", 1)])
async def test_an_old_client_gets_no_interim_response(version: bytes, interim: int) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await answering(b"")(scope, receive, send)

    recorder, protocol = connected(app)
    head = b"PUT / HTTP/%b\r\nhost: test\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n" % version
    protocol.data_received(head)
    await asyncio.sleep(0)
    protocol.data_received(b"{}")
    await finished(protocol)
    sent = b"".join(cast("bytes", one) for one in recorder.done if one != "closed")
    assert sent.count(b"HTTP/1.1 100 Continue\r\n\r\n") == interim
    assert sent.count(b"HTTP/1.1 200 OK\r\n") == 1
