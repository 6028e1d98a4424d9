"""HTTP/1.x requests from bytes, with limits on the size of heads and on the framing of bodies."""

import re
from collections.abc import Callable

import httptools

from ..core import MalformedRequest, TooLarge
from ..core.errors import Overloaded
from .chunked_body import ChunkedBody
from .request_head import PLAIN_TARGET, REQUEST_LINE, check_head

HEAD_BYTES_MAX = 65_536
HEADERS_MAX = 128

BODY_FRAMING_BYTES_MAX = 65_536
"""How many bytes may arrive with a body besides twice its size: the sizes of its chunks, and trailers."""

HEADS_MAX = 100
"""How many requests may arrive together."""

EMPTY_LINES_MAX = 16
"""How many empty lines may arrive before a request."""

LENGTH_DIGITS_MAX = 20
"""How many digits a Content-Length may have."""

_EMPTY_LINES = re.compile(rb"(?:\r\n){1,%d}" % (EMPTY_LINES_MAX + 1))
_EMPTY_LINE = b"\r\n\r\n"
_UPGRADE = (b"upgrade", b"http2-settings")
_LENGTH, _CODING = b"content-length", b"transfer-encoding"


class RequestParser:
    """Parses the requests of one connection, and passes on each head, each part of a body and each end of a request.

    The functions that receive them may raise a TableError. `in_head` and `in_body` describe the request that has
    arrived in part.
    """

    headers: list[tuple[bytes, bytes]]

    def __init__(
        self, on_request: Callable[[], None], on_body: Callable[[bytes], None], on_complete: Callable[[], None]
    ) -> None:
        self.in_head = self.in_body = False
        self._on_request, self._on_body, self._on_complete = on_request, on_body, on_complete
        self._parser = httptools.HttpRequestParser(self)
        self._heads = self._piece_bytes = self._body_bytes = self._spare_bytes = 0
        self._line: bytes | None = b""
        self._empty_lines = 0
        self._tail = b""
        self._body_left: int | None = None

    def feed(self, data: bytes) -> None:
        """Parse bytes. Raise a TableError if they are not a valid request, or above a limit."""
        was_in_head, self._piece_bytes, self._heads, self._body_bytes = self.in_head, len(data), 0, 0
        try:
            self._parse(data)
        except httptools.HttpParserError as error:
            cause = error.__context__  # raised by a callback
            if cause is None or isinstance(cause, httptools.HttpParserError):
                raise _malformed() from None
            raise cause from None
        if self.in_head or (self.in_body and not self._heads):
            self._check_partial(was_in_head=was_in_head)

    def _parse(self, data: bytes) -> None:
        """Parse requests, each head from its first byte. A head with `Upgrade` is parsed again without that header."""
        start = 0
        while start < len(data):
            if self._line == b"" and REQUEST_LINE.match(data, start):
                self._line = None
            elif self._line is not None:
                start = self._read_part(data, start)
            end = self._next_end(data, start)
            try:
                self._parser.feed_data(data[start:end])  # Copying is faster than a memoryview.
            except httptools.HttpParserUpgrade as upgrade:
                data, end = self._head_without_upgrade() + data[start + upgrade.args[0] :], 0
                self._parser = httptools.HttpRequestParser(self)
            start = end

    def _read_part(self, data: bytes, start: int) -> int:
        """Check a request line that arrives in parts, or after empty lines. Return where it starts."""
        assert self._line is not None
        if self._line == b"\r" and data.startswith(b"\n", start):
            self._line, self._empty_lines, start = b"", self._empty_lines + 1, start + 1
        if not self._line and (skipped := _EMPTY_LINES.match(data, start)) is not None:
            self._empty_lines += len(skipped[0]) // 2
            start = skipped.end()
        if self._empty_lines > EMPTY_LINES_MAX:
            raise _malformed()
        end = data.find(b"\n", start) + 1
        self._line += data[start : end or len(data)]
        if end:
            if not REQUEST_LINE.fullmatch(self._line):
                raise _malformed()
            self._line = None
        return start

    def _next_end(self, data: bytes, start: int) -> int:
        """Return where the present head or body ends, at the latest: no piece contains bytes of two requests.

        A head ends with an empty line.
        """
        if self.in_body:
            return self._chunks.end(data, start) if self._body_left is None else start + self._body_left
        if not self._tail and (at := data.find(_EMPTY_LINE, start)) >= 0:
            return at + len(_EMPTY_LINE)
        across = (self._tail + data[start : start + 3]).find(_EMPTY_LINE) if self._tail else -1
        at = data.find(_EMPTY_LINE, start) if across < 0 else start + across - len(self._tail)
        if across < 0 and at < 0:
            self._tail = (self._tail + data[max(start, len(data) - 3) :])[-3:]
            return len(data)
        self._tail = b""
        return at + len(_EMPTY_LINE)

    def _head_without_upgrade(self) -> bytes:
        version = self._parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (self._parser.get_method(), self.url, version)]
        for name, value in self.headers:
            if name == b"connection":
                value = b",".join(one for one in value.split(b",") if one.strip().lower() not in _UPGRADE)
            if name not in _UPGRADE:
                lines.append(name + b": " + value)
        return b"\r\n".join(lines) + b"\r\n\r\n"

    def _check_partial(self, *, was_in_head: bool) -> None:
        """Limit the bytes of a request that has arrived in part, except those of its body."""
        if self.in_head and (self._heads or not was_in_head):
            self._spare_bytes = 0  # Most of the piece may be the end of the request before.
            return
        self._spare_bytes += self._piece_bytes - 2 * self._body_bytes
        if self.in_head and self._spare_bytes > HEAD_BYTES_MAX:
            raise _long_head()
        if self._spare_bytes > BODY_FRAMING_BYTES_MAX:
            raise TooLarge("the chunks of the body are too small, or their extensions or trailers too large")

    # Callbacks of httptools

    def on_message_begin(self) -> None:
        """Start a head."""
        self.in_head, self.url, self.headers = True, b"", []

    def on_url(self, url: bytes) -> None:
        """Add a part of the URL."""
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header. The trailers of a body are ignored."""
        if self.in_head:
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Check a head and pass it on."""
        self.in_head, self.method = False, self._parser.get_method().decode("ascii")
        if not self._parser.should_upgrade() or self.method == "CONNECT":  # Otherwise it is parsed again.
            self._check_head()
            self._on_request()
            self.in_body, self._spare_bytes = True, 0

    def _check_head(self) -> None:
        if self._line is not None:
            raise _malformed()
        self._heads += 1
        self.version, headers = self._parser.get_http_version(), self.headers
        self.keep_alive = self.version == "1.1" and self._parser.should_keep_alive()
        names = [name for name, _ in headers]
        self._body_left = _length(headers[names.index(_LENGTH)][1]) if _LENGTH in names else None
        if chunked := _CODING in names:
            self._chunks = ChunkedBody()
        self.has_body = self._body_left is not None or chunked
        valid = self.version == "1.1" or (self.version == "1.0" and not chunked)
        if self.method == "CONNECT" or not valid:
            raise _malformed()
        if len(headers) > HEADERS_MAX:
            raise TooLarge(f"a request may have {HEADERS_MAX} headers")
        may_be_long = self._spare_bytes + self._piece_bytes > HEAD_BYTES_MAX
        if may_be_long and len(self.url) + sum(len(name) + len(value) + 4 for name, value in headers) > HEAD_BYTES_MAX:
            raise _long_head()
        if self._heads > HEADS_MAX:
            raise Overloaded(f"{HEADS_MAX} requests wait on this connection")
        if names.count(b"host") != 1 or PLAIN_TARGET.fullmatch(self.url) is None:
            self.url = check_head(self.version, self.url, names, headers)
        self.expects_continue = (
            b"expect" in names
            and self.version == "1.1"
            and any(name == b"expect" and value.lower() == b"100-continue" for name, value in headers)
        )

    def on_body(self, body: bytes) -> None:
        """Pass a part of a body on."""
        self._body_bytes += len(body)
        if self._body_left is not None:
            self._body_left -= len(body)
        self._on_body(body)

    def on_message_complete(self) -> None:
        """Complete a request."""
        self._line, self._empty_lines = b"", 0
        if self.in_body:
            self.in_body = False
            self._on_complete()


def _length(text: bytes) -> int:
    if len(text.rstrip()) > LENGTH_DIGITS_MAX:  # Leading zeros are valid, but Python converts only 4,300 digits.
        raise _malformed()
    return int(text)


def _malformed() -> MalformedRequest:
    return MalformedRequest("the request is not valid HTTP/1.1")


def _long_head() -> TooLarge:
    return TooLarge(f"the head of a request may have {HEAD_BYTES_MAX} bytes")
