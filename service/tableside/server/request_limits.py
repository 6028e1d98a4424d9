"""What may stand around requests on a connection: how large heads are, how bodies are cut, which HTTP is spoken.

Knows nothing of what is asked, and of time.
"""

from collections.abc import Sequence
from typing import Any

import httptools

from ..core import MalformedRequest, TableError, TooLarge

HEAD_BYTES_MAX = 65_536
"""What the head of a request may have."""

HEADERS_MAX = 128

SPARE_BYTES_MAX = 65_536
"""How much more than the body itself may come while it comes: sizes of chunks, and what follows the last of them."""

Headers = Sequence[tuple[bytes, bytes]]


class Framing:
    """What has come on a connection, of the request that comes now."""

    __slots__ = ("_came_bytes", "_head_bytes", "_spare_bytes", "body_bytes", "heads", "in_body")

    def __init__(self) -> None:
        self.in_body = False
        self.body_bytes = 0
        self.heads = 0
        self._came_bytes = 0
        self._head_bytes = 0
        self._spare_bytes = 0

    def came(self, count: int) -> None:
        """Take note of a piece, before it is read."""
        self._came_bytes = count
        self.heads = 0

    def refusal(self, version: str, url: bytes, headers: Headers, *, upgrade: bool) -> TableError | None:
        """Return why a request whose head is complete is refused, None if it is not."""
        self.heads += 1
        large = self._head_bytes + self._came_bytes > HEAD_BYTES_MAX
        self._head_bytes = self._spare_bytes = self.body_bytes = 0
        if upgrade or (version != "1.1" and not _readable(version, headers)):
            return MalformedRequest("the request is not HTTP/1.1 that can be read")
        if len(headers) > HEADERS_MAX:
            return TooLarge(f"a request may have {HEADERS_MAX} headers")
        if large and len(url) + sum(len(name) + len(value) + 4 for name, value in headers) > HEAD_BYTES_MAX:
            return _long_head()
        return None

    def head_refusal(self, count: int) -> TableError | None:
        """Return why a head is refused of which another piece has come, and not the end."""
        self._head_bytes += count
        return _long_head() if self._head_bytes > HEAD_BYTES_MAX else None

    def body_refusal(self, count: int) -> TableError | None:
        """Return why a body is refused of which another piece has come, and not the end."""
        if self.heads:
            return None  # It began in this piece, wherever.
        self._spare_bytes += count
        if self._spare_bytes <= 2 * self.body_bytes + SPARE_BYTES_MAX:
            return None
        return TooLarge("the chunks of a body are too small, or what stands around them too large")


def without_upgrade(parser: httptools.HttpRequestParser, url: bytes, headers: Headers) -> bytes:
    """Return the head of a request that does not ask for another protocol. CONNECT does, whatever its headers."""
    lines = [b"%b %b HTTP/%b" % (parser.get_method(), url, parser.get_http_version().encode())]
    for name, value in headers:
        if name == b"connection":
            kept = [one for one in value.split(b",") if one.strip().lower() not in (b"upgrade", b"http2-settings")]
            value = b",".join(kept)
        if name not in (b"upgrade", b"http2-settings"):
            lines.append(name + b": " + value)
    return b"\r\n".join(lines) + b"\r\n\r\n"


class _Nowhere(list[tuple[bytes, bytes]]):
    """A list that keeps nothing."""

    def append(self, one: Any) -> None:
        """Pass it over."""


NOWHERE: list[tuple[bytes, bytes]] = _Nowhere()


def _readable(version: str, headers: Headers) -> bool:
    """Whether it is a version that is spoken here, and what it has not is not in it."""
    return version == "1.0" and not any(name == b"transfer-encoding" for name, _ in headers)


def _long_head() -> TableError:
    return TooLarge(f"the head of a request may have {HEAD_BYTES_MAX} bytes")
