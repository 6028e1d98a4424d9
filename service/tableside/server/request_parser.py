"""HTTP/1.x requests from bytes, with limits on the size of heads and on the framing of bodies.

No lenient parser of a library is used: proxies in front of the service must never read a request differently.
"""

import re
from collections.abc import Callable

from ..core import TooLarge
from .request_head import REQUEST_LINE, RequestHead, malformed, parse_head

HEAD_BYTES_MAX = 65_536

BODY_FRAMING_BYTES_MAX = 65_536
"""How many bytes may arrive with a body besides twice its size: the sizes of its chunks, and trailers."""

EMPTY_LINES_MAX = 16
"""How many empty lines may arrive before a request."""

_LINE_START = re.compile(rb"(?:\r|[A-Z][A-Z-]{0,31}(?: [^\x00-\x1f\x7f]*\r?)?)")
"""The start of a request line, or of an empty line."""

_FIRST_SIZE = re.compile(rb"([0-9A-Fa-f]{1,16})(?:[ \t]*;[^\x00-\x08\x0a-\x1f\x7f]*)?\r\n")
_NEXT_SIZE = re.compile(rb"\r\n" + _FIRST_SIZE.pattern)
"""The line that announces a chunk, with extensions, after the line break that ends the chunk before it."""

_TRAILER = re.compile(rb"(?:[!-9;-~]+:[^\x00-\x08\x0a-\x1f\x7f]*)?\r\n")


class RequestParser:
    """Parses the requests of one connection, and passes on each head, the parts of its body, and its end.

    The functions that receive them may raise a TableError. `in_body` tells whether a body has arrived in part.
    """

    def __init__(
        self,
        on_request: Callable[[RequestHead], None],
        on_body: Callable[[bytes], None],
        on_complete: Callable[[], None],
    ) -> None:
        self.in_body = False
        self._on_request, self._on_body, self._on_complete = on_request, on_body, on_complete
        self._rest = b""
        self._empty_lines = 0
        self._left_bytes = 0
        self._expected: re.Pattern[bytes] | None = None
        self._body_bytes = self._framing_bytes = 0

    @property
    def in_head(self) -> bool:
        """Whether a head has arrived in part."""
        return bool(self._rest) and not self.in_body

    def feed(self, data: bytes) -> None:
        """Parse bytes. Raise a TableError if they are not a valid request, or above a limit."""
        data, self._rest, at = self._rest + data, b"", 0
        while at < len(data):
            end = self._read_body(data, at) if self.in_body else self._read_head(data, at)
            if end == at:
                self._rest = data[at:]
                return
            at = end

    def _read_head(self, data: bytes, at: int) -> int:
        """Read an empty line or a head. Return where it ends, or where it starts if it is not complete."""
        if data.startswith(b"\r\n", at):
            self._empty_lines += 1
            if self._empty_lines > EMPTY_LINES_MAX:
                raise malformed()
            return at + 2
        end = data.find(b"\r\n\r\n", at) + 4
        if end < 4:
            start = _LINE_START.fullmatch(data, at) if data.find(b"\n", at) < 0 else REQUEST_LINE.match(data, at)
            if start is None:
                raise malformed()
        if (end if end >= 4 else len(data)) - at > HEAD_BYTES_MAX:
            raise TooLarge(f"the head of a request may have {HEAD_BYTES_MAX} bytes")
        if end < 4:
            return at
        self._start(parse_head(data[at:end]))
        return end

    def _start(self, head: RequestHead) -> None:
        self._empty_lines = self._body_bytes = self._framing_bytes = 0
        self._left_bytes, self._expected = head.body_bytes or 0, _FIRST_SIZE if head.body_bytes is None else None
        self._on_request(head)
        if head.body_bytes == 0:
            self._on_complete()
        else:
            self.in_body = True

    def _read_body(self, data: bytes, at: int) -> int:
        """Read as much of a body as has arrived. Return where that ends."""
        if self._expected is not None:
            return self._read_chunks(data, at)
        body = data[at : at + self._left_bytes]
        self._left_bytes -= len(body)
        self._on_body(body)
        if not self._left_bytes:
            self._complete()
        return at + len(body)

    def _complete(self) -> None:
        self.in_body = False
        self._on_complete()

    def _read_chunks(self, data: bytes, at: int) -> int:
        """Read chunks, and the trailers after them, which are ignored. Return where the last complete line ends."""
        parts: list[bytes] = []
        while at < len(data) and self._expected is not None:
            if self._left_bytes:
                parts.append(data[at : at + self._left_bytes])
                self._left_bytes -= len(parts[-1])
                self._body_bytes += len(parts[-1])
                at += len(parts[-1])
            elif (line := self._expected.match(data, at)) is None:
                self._check_incomplete(data, at)
                break
            else:
                self._framing_bytes += line.end() - at
                at = line.end()
                self._expect_after(line)
        if parts:
            self._on_body(b"".join(parts))
        if self._expected is None:
            self._complete()
        elif self._framing_bytes > self._body_bytes + BODY_FRAMING_BYTES_MAX:
            raise _long_framing()
        return at

    def _expect_after(self, line: re.Match[bytes]) -> None:
        """Choose what follows a line: a chunk, a trailer, or nothing."""
        if self._expected is not _TRAILER:
            self._left_bytes = int(line[1], 16)
            self._expected = _NEXT_SIZE if self._left_bytes else _TRAILER
        elif line[0] == b"\r\n":
            self._expected = None

    def _check_incomplete(self, data: bytes, at: int) -> None:
        """Raise an error unless the bytes may be the start of the expected line."""
        after_chunk = self._expected is _NEXT_SIZE
        if data.count(b"\n", at) > after_chunk or (after_chunk and not b"\r\n".startswith(data[at : at + 2])):
            raise malformed()
        if self._framing_bytes + len(data) - at > self._body_bytes + BODY_FRAMING_BYTES_MAX:
            raise _long_framing()


def _long_framing() -> TooLarge:
    return TooLarge("the chunks of the body are too small, or their extensions or trailers too large")
