"""Limits on the size of request heads and of the framing of bodies, and the HTTP versions that are supported."""

from collections.abc import Sequence

import httptools

from ..core import MalformedRequest, TooLarge

HEAD_BYTES_MAX = 65_536
HEADERS_MAX = 128

BODY_FRAMING_BYTES_MAX = 65_536
"""How many bytes may arrive with a body besides twice its size: the sizes of its chunks, and trailers."""

Headers = Sequence[tuple[bytes, bytes]]


class RequestLimits:
    """Counts the bytes of the request that a connection is receiving. The checks raise TableError above a limit."""

    __slots__ = ("_framing_bytes", "_head_bytes", "_piece_bytes", "body_bytes", "heads")

    def __init__(self) -> None:
        self.body_bytes = 0
        self.heads = 0
        self._framing_bytes = 0
        self._head_bytes = 0
        self._piece_bytes = 0

    def begin_piece(self, size_bytes: int) -> None:
        """Count bytes that have arrived and are not parsed yet."""
        self._piece_bytes = size_bytes
        self.heads = 0

    def check_head(self, version: str, url: bytes, headers: Headers, *, upgrade: bool) -> None:
        """Check a complete head."""
        self.heads += 1
        may_be_long = self._head_bytes + self._piece_bytes > HEAD_BYTES_MAX
        self._head_bytes = self._framing_bytes = self.body_bytes = 0
        if upgrade or (version != "1.1" and not _is_plain_1_0(version, headers)):
            raise malformed()
        if len(headers) > HEADERS_MAX:
            raise TooLarge(f"a request may have {HEADERS_MAX} headers")
        if may_be_long and len(url) + sum(len(name) + len(value) + 4 for name, value in headers) > HEAD_BYTES_MAX:
            raise _long_head()

    def check_partial_head(self) -> None:
        """Check a head after another piece of it, which is not the last one."""
        self._head_bytes += self._piece_bytes
        if self._head_bytes > HEAD_BYTES_MAX:
            raise _long_head()

    def check_partial_body(self) -> None:
        """Check a body after another piece of it, which is not the last one."""
        if self.heads:
            return  # The piece also contains the head, and perhaps other requests.
        self._framing_bytes += self._piece_bytes
        if self._framing_bytes > 2 * self.body_bytes + BODY_FRAMING_BYTES_MAX:
            raise TooLarge("the chunks of the body are too small, or their extensions or trailers too large")


def malformed() -> MalformedRequest:
    """Return the error for bytes that are not an HTTP request."""
    return MalformedRequest("the request is not valid HTTP/1.1")


def without_upgrade(parser: httptools.HttpRequestParser, url: bytes, headers: Headers) -> bytes:
    """Return the head of a request without its upgrade headers."""
    lines = [b"%b %b HTTP/%b" % (parser.get_method(), url, parser.get_http_version().encode())]
    for name, value in headers:
        if name == b"connection":
            kept = [one for one in value.split(b",") if one.strip().lower() not in (b"upgrade", b"http2-settings")]
            value = b",".join(kept)
        if name not in (b"upgrade", b"http2-settings"):
            lines.append(name + b": " + value)
    return b"\r\n".join(lines) + b"\r\n\r\n"


def _is_plain_1_0(version: str, headers: Headers) -> bool:
    """Return whether a request is HTTP/1.0, which has no chunked bodies."""
    return version == "1.0" and not any(name == b"transfer-encoding" for name, _ in headers)


def _long_head() -> TooLarge:
    return TooLarge(f"the head of a request may have {HEAD_BYTES_MAX} bytes")
