"""Hostile requests, generated from a seed: altered legal requests, and requests known to confuse HTTP servers.

Every key, value and token in them contains the marker, which must not appear in logs or error responses.
"""

import base64
import functools
import gzip
import hashlib
import json
import random
import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from hostile.seeds import batches, stream
from tableside.http.wire import pages

MARKER = "mar5ker"
TABLES = ("mem", "rocks", "pages", "spread", "none")
ARROW = "application/vnd.apache.arrow.stream"
ALTERED_SHARE = 0.5
BOMB_BYTES = 2**22


class Requests:
    """The requests for one connection, in order."""

    def __init__(self, seed: int, token: str | None) -> None:
        self._random = random.Random(seed)
        self._token = token
        self._streams = _streams()
        self._bombs = _bombs()

    def one(self) -> bytes:
        """Return the next bytes to send: one request, several, or bytes that resemble a request."""
        if self._random.random() < ALTERED_SHARE:
            return self._altered(self._legal())
        return self._random.choice(_KINDS)(self)

    def _legal(self) -> bytes:
        dice, table = self._random, self._random.choice(TABLES)
        key = f"{MARKER}{dice.randrange(50)}" + ("/7" if table == "pages" else "")
        path, record = f"/v1/tables/{table}", f"/v1/tables/{table}/records/{key}"
        value = {"n": dice.randrange(9), "s": MARKER, "l": [1.5, None, {"a": MARKER}]}
        update = {"update": {"$inc": {"n": 1}, "$set": {"s": MARKER}}, "default": value}
        merge = {"Content-Type": "application/merge-patch+json", "Prefer": "return=representation, wait=1"}
        op = dice.choice(("", "?op=get", "?op=put", "?op=update&writer=w"))
        query = dice.choice(("", "?limit=3", f"?prefix={MARKER}", f"?partition={MARKER}", f"?cursor={MARKER}"))
        page = dice.choice(
            ("/livez", "/readyz", "/metrics", "/v1/tables", "/console", "/docs", "/openapi.json", record)
        )
        requests: tuple[tuple[str, str, Any, dict[str, str]], ...] = (
            ("GET", record + dice.choice(("", "?fields=n,s", "?partitions=0")), None, {}),
            ("PUT", record, value, dice.choice(({}, {"If-Match": f'"{MARKER}"'}))),
            ("PATCH", record, update, {}),
            ("PATCH", record, value, merge),
            ("DELETE", record, None, {"Tableside-Token": f"{MARKER}/{dice.randrange(9)}"}),
            ("POST", f"{path}/batch", self._batch(key, value), {}),
            ("POST", f"{path}/batch{op}", dice.choice(self._streams), {"Content-Type": ARROW}),
            ("GET", f"{path}/records{query}", None, {"Accept": dice.choice(("*/*", ARROW))}),
            (dice.choice(("GET", "HEAD", "OPTIONS", "TRACE", "POST", "M-SEARCH")), page, None, {}),
        )
        method, target, document, headers = dice.choice(requests)
        body = document if isinstance(document, bytes | None) else json.dumps(document).encode()
        return self._request(method, target, body, **headers)

    def _batch(self, key: str, value: dict[str, Any]) -> dict[str, Any]:
        operations: list[dict[str, Any]] = [
            {"op": "get", "key": key},
            {"op": "put", "key": key, "value": value, "if_match": MARKER},
            {"op": "update", "key": key, "update": {"$push": {"l": MARKER}}, "default": value, "return": True},
            {"op": "put", "key": [MARKER, 7], "value": value, "ttl_s": 60},
            {"op": "delete", "key": key, "token": {"writer": MARKER, "sequence": 1}},
            {"op": MARKER, "key": key},
        ]
        return {"operations": self._random.sample(operations, self._random.randrange(len(operations)))}

    def _request(self, method: str, path: str, body: bytes | None = None, **headers: str) -> bytes:
        given = {"Host": "127.0.0.1", "Content-Type": "application/json", **headers}
        if self._token is not None:
            known = self._random.random() < 0.8
            given["Authorization"] = f"Bearer {self._token if known else MARKER}"
        if body is not None:
            given["Content-Length"] = str(len(body))
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {text}" for name, text in given.items())]
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + (body or b"")

    def _altered(self, request: bytes) -> bytes:
        dice, text = self._random, bytearray(request)
        for _ in range(dice.choice((0, 1, 1, 2, 8))):
            at = dice.randrange(len(text) or 1)
            piece = dice.choice(
                (bytes([dice.randrange(256)]), dice.choice(_PIECES), text[at : at + dice.randrange(200)])
            )
            end = dice.choice((at, at, at + 1, at + dice.randrange(20), len(text)))
            text[at:end] = dice.choice((piece, b""))
        return bytes(text)

    # Requests that are hostile by design, by kind

    def _framed(self) -> bytes:
        path = f"/v1/tables/mem/records/{MARKER}"
        said = {b"HOST": b"Host: 127.0.0.1\r\n", b"PATH": path.encode(), b"MARKER": MARKER.encode()}
        return re.sub(rb"HOST|PATH|MARKER", lambda found: said[found[0]], self._random.choice(_FRAMES))

    def _nested(self) -> bytes:
        dice, depth = self._random, self._random.choice((29, 31, 1000, 30_000))
        opened, closed = dice.choice(((b'{"a":', b"}"), (b"[", b"]"), (b'{"$set":', b"}"), (b'[{"a":', b"}]")))
        body = opened * depth + b"1" + closed * depth * dice.randrange(2)
        path = dice.choice((f"/v1/tables/mem/records/{MARKER}", "/v1/tables/rocks/batch"))
        return self._request(dice.choice(("PUT", "PATCH", "POST")), path, body)

    def _large(self) -> bytes:
        dice, record = self._random, f"/v1/tables/mem/records/{MARKER}"
        many = {f"x-{number}": MARKER for number in range(dice.choice((100, 5000)))}
        requests: tuple[tuple[str, str, bytes | None, dict[str, str]], ...] = (
            ("PUT", record, b'{"a":"%b"}' % (b"x" * 300_000), {}),
            ("PUT", record, b'{"a":%b}' % (b"9" * dice.choice((20, 5000))), {}),
            ("PUT", record, b'{"a":1e%b}' % (b"9" * 50), {}),
            ("GET", record * dice.choice((20, 2000)), None, {}),
            ("GET", f"/v1/tables/mem/records?{f'fields={MARKER}&' * 5000}", None, {}),
            ("GET", "/livez", None, many),
            ("GET", "/livez", None, {"x": MARKER * dice.choice((1000, 12_000))}),
        )
        method, path, body, headers = dice.choice(requests)
        return self._request(method, path, body, **headers)

    def _bomb(self) -> bytes:
        encoding, body = self._random.choice(self._bombs)
        given = {"Content-Type": ARROW} if encoding is None else {"Content-Encoding": encoding}
        return self._request("POST", "/v1/tables/mem/batch?op=get", body, **given)

    def _pipelined(self) -> bytes:
        count = self._random.choice((2, 5, 20, 200))
        return b"".join(self._legal() for _ in range(count))

    def _forged(self) -> bytes:
        dice = self._random
        position = dice.choice((b"", b"\xff" * 9, MARKER.encode(), dice.randbytes(20), b"6162-.63", b"a\0" * 600))
        table = dice.choice(TABLES)
        shared = ("spread", 2) if table == "spread" else (table,)
        cursor = pages.seal(position, 1, "scan", *shared, None, None, None)
        split = pages.seal(position, 1, "split", *shared)
        said = dice.choice(
            (f"cursor={cursor}", f"split={split}", f"cursor={base64.urlsafe_b64encode(position).decode()}")
        )
        return self._request("GET", f"/v1/tables/{table}/records?{said}")

    def _encoded(self) -> bytes:
        dice = self._random
        odd = ("%00", "%C3", "%ED%A0%80", "%2F", "%", "%zz", "..%2f..", ".", "%0d%0aX:%20y", "%F0%9F%98%80", "a" * 1025)
        return self._request(
            dice.choice(("GET", "DELETE", "PUT")), f"/v1/tables/mem/records/{MARKER}{dice.choice(odd)}"
        )


_KINDS: tuple[Callable[[Requests], bytes], ...] = (
    *(Requests._framed, Requests._framed, Requests._nested, Requests._large, Requests._bomb, Requests._pipelined),
    *(Requests._forged, Requests._encoded),
)

_PIECES = (
    *(b"\r\n", b"\n", b"\r", b"\0", b" ", b"\t", b":", b"%00", b"\xff\xfe", b"9" * 30, b"-1", b'"', b"{", b"[" * 100),
    *(b"Transfer-Encoding: chunked\r\n", b"Content-Length: 7\r\n", b"Expect: 100-continue\r\n", b"1e999", b"\\ud800"),
)

_FRAMES = (
    b"PUT PATH HTTP/1.1\r\nHOSTContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n",
    b"PUT PATH HTTP/1.1\r\nHOSTContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}MARKER",
    b"PUT PATH HTTP/1.1\r\nHOSTContent-Length: 99999999999999999999999\r\n\r\n{}MARKER",
    b"PUT PATH HTTP/1.1\r\nHOSTTransfer-Encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    b"PUT PATH HTTP/1.1\r\nHOSTTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n{}\r\n0\r\n\r\n",
    b"PUT PATH HTTP/1.1\r\nHOSTTransfer-Encoding: chunked\r\n\r\n2;x=MARKER\r\n{}\r\n0\r\nx: MARKER\r\n\r\n",
    b"PUT PATH HTTP/1.1\r\nHOSTExpect: 100-continue\r\nContent-Length: 2\r\n\r\n",
    b"PUT PATH HTTP/1.1\r\nHOSTExpect: MARKER\r\nContent-Length: 2\r\n\r\n{}",
    b"GET PATH HTTP/1.1\nHost: 127.0.0.1\n\n",
    b"GET PATH HTTP/1.1\r\nHOST folded: MARKER\r\n\r\n",
    b"GET PATH HTTP/1.1\r\nHOSTX: a\0MARKER\r\n\r\n",
    b"GET PATH\xff\xfe HTTP/1.1\r\nHOST\r\n",
    b"GET http://MARKER.example:99PATH HTTP/1.1\r\nHOST\r\n",
    b"GET PATH HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    b"GET PATH HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    b"GET PATH HTTP/1.1\r\nHOSTConnection: close\r\n\r\nGET PATH HTTP/1.1\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(200)),
    b"GET PATH HTTP/1.1\r\nHOSTConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: MARKER\r\n\r\n",
    b"CONNECT MARKER:443 HTTP/1.1\r\nHOST\r\n\x16\x03\x01",
    b"HEAD PATH HTTP/1.1\r\nHOSTContent-Length: 5\r\n\r\nabcde",
    b"\0" * 100,
    b"MARKER\r\n\r\n",
)


@functools.cache
def _streams() -> list[bytes]:
    return [one for one in batches() if len(one) < 3000]


@functools.cache
def _bombs() -> list[tuple[str | None, bytes]]:
    """Return bodies that expand a lot, with Arrow's compression and with HTTP's, which the service does not accept."""
    zeros = bytes(BOMB_BYTES)
    column = pa.array(["\0" * BOMB_BYTES])
    members = gzip.compress(zeros) * 2 + b"garbage"
    found: list[tuple[str | None, bytes]] = [("gzip", members), ("zstd", b"\x28\xb5\x2f\xfd" + zeros[:100])]
    for compression in ("lz4", "zstd"):
        whole = stream({"key": column}, compression)
        found += [(None, whole), (None, whole[: len(whole) // 2]), (None, whole + b"garbage")]
    many = pa.array([MARKER] * 50_000).dictionary_encode()
    return [*found, (None, stream({"key": many}, None)), ("deflate", hashlib.sha256(zeros).digest())]
