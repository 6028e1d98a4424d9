"""HTTP/1.x requests from bytes, with limits on the size of heads and on the framing of bodies.

No lenient parser of a library is used: proxies in front of the service must never read a request differently.
"""

import re
from collections.abc import Callable, Mapping
from urllib.parse import unquote_to_bytes

import msgspec

from ..core import MalformedRequest, TooLarge
from ..http import headers_by_name

HEAD_BYTES_MAX = 65_536
HEADERS_MAX = 128

Headers = list[tuple[bytes, bytes]]

_REQUEST_LINE = re.compile(rb"([A-Z][A-Z-]{0,31}) (?:(/[!-\"$&-~]*)|([^\x00-\x20\x7f]+)) HTTP/(1\.[01])\r\n")
"""One space between the parts, and no other protocol, such as RTSP. The target is a plain path, or must be checked."""

_HEADER = re.compile(rb"^([!#$%&'*+.^_`|~0-9A-Za-z-]+):([^\x00-\x08\x0a-\x1f\x7f]*)\r\n", re.MULTILINE)
"""One whole line."""

_LENGTH = re.compile(rb"[0-9]{1,20}")
"""A Content-Length. Leading zeros are valid, but Python converts only 4,300 digits."""

_ABSOLUTE = re.compile(rb"(https?)://([^/?#@]+)(?:[/?#]|$)", re.IGNORECASE)
_BROKEN_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_ESCAPED_NON_ASCII = re.compile(rb"%[89A-Fa-f]")
_DEFAULT_PORTS = {b"http": b":80", b"https": b":443"}

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

    The functions that receive them may raise a TableError. `in_head` and `in_body` tell what has arrived in part.
    """

    def __init__(
        self,
        on_request: "Callable[[RequestHead], None]",
        on_body: Callable[[bytes], None],
        on_complete: Callable[[], None],
    ) -> None:
        self.in_head = self.in_body = False
        self._on_request, self._on_body, self._on_complete = on_request, on_body, on_complete
        self._rest = b""
        self._empty_lines = 0
        self._left_bytes = 0
        self._expected: re.Pattern[bytes] | None = None
        self._body_bytes = self._framing_bytes = 0

    def feed(self, data: bytes) -> None:
        """Parse bytes. Raise a TableError if they are not a valid request, or above a limit."""
        data, self._rest, self.in_head, at = self._rest + data, b"", False, 0
        while at < len(data):
            end = self._read_body(data, at) if self.in_body else self._read_head(data, at)
            if end == at:
                self._rest, self.in_head = data[at:], not self.in_body
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
            start = _LINE_START.fullmatch(data, at) if data.find(b"\n", at) < 0 else _REQUEST_LINE.match(data, at)
            if start is None:
                raise malformed()
        if (end if end >= 4 else len(data)) - at > HEAD_BYTES_MAX:
            raise TooLarge(f"the head of a request may have {HEAD_BYTES_MAX} bytes")
        if end < 4:
            return at
        self._start(parse_head(data[at:end]))
        return end

    def _start(self, head: "RequestHead") -> None:
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


class RequestHead(msgspec.Struct):
    """A head. `target` is the path and query. The names of `headers` are in lower case.

    `body_bytes` is the length of the body, 0 if there is none, and None if it consists of chunks. After the response to
    a request without `keep_alive` the connection is closed.
    """

    method: str
    target: bytes
    version: str
    headers: Headers
    body_bytes: int | None
    keep_alive: bool
    expects_continue: bool


def parse_head(text: bytes) -> RequestHead:
    """Return the head in a text, which ends with an empty line.

    Raise MalformedRequest if a proxy may read it differently, TooLarge if it has too many headers.
    """
    line = _REQUEST_LINE.match(text)
    if line is None:
        raise malformed()
    lines = _HEADER.findall(text, line.end())
    if text.count(b"\n") != len(lines) + 2:
        raise malformed()  # A line between the first and the empty one is not a header.
    if len(lines) > HEADERS_MAX:
        raise TooLarge(f"a request may have {HEADERS_MAX} headers")
    headers = [(name.lower(), value.strip(b" \t")) for name, value in lines]
    given = headers_by_name(headers)
    method, version = line[1].decode(), line[4].decode()
    if method == "CONNECT":
        raise malformed()
    body_bytes = _body_bytes(given, version)
    _check_host(given, version, headers)
    return RequestHead(
        method,
        line[2] or _checked_target(line[3], headers),
        version,
        headers,
        body_bytes,
        keep_alive=version == "1.1" and b"close" not in _listed(given, b"connection"),
        expects_continue=version == "1.1" and b"100-continue" in _listed(given, b"expect"),
    )


def malformed() -> MalformedRequest:
    """Return the error for a request that does not have the syntax of HTTP/1.1."""
    return MalformedRequest("the request is not valid HTTP/1.1")


def _listed(given: Mapping[bytes, bytes], name: bytes) -> list[bytes]:
    """Return the elements of a header's comma-separated values, in lower case."""
    return [one.strip(b" \t") for one in given[name].lower().split(b",")] if name in given else []


def _body_bytes(given: Mapping[bytes, bytes], version: str) -> int | None:
    """Return the length of the body, or None if it consists of chunks. Any ambiguity is malformed."""
    codings, length = _listed(given, b"transfer-encoding"), given.get(b"content-length")
    if codings:
        if length is not None or version == "1.0" or codings[-1] != b"chunked" or b"chunked" in codings[:-1]:
            raise malformed()
        return None
    if length is None:
        return 0
    if _LENGTH.fullmatch(length) is None:  # Repeated lengths are joined by commas.
        raise malformed()
    return int(length)


def _check_host(given: Mapping[bytes, bytes], version: str, headers: Headers) -> None:
    """Raise MalformedRequest unless there is one `Host`, or none with HTTP/1.0."""
    repeated = len(given) < len(headers) and [name for name, _ in headers].count(b"host") > 1
    if repeated or (b"host" not in given and version == "1.1"):
        raise MalformedRequest("a request must have one Host header")


def _checked_target(target: bytes, headers: Headers) -> bytes:
    """Return the path and query of a request. Raise MalformedRequest if its target is not valid."""
    if target[:1] != b"/":
        target = _without_host(target, headers)
    if b"#" in target:
        raise MalformedRequest("the target of a request must not have a fragment")
    if not target.isascii() or (b"%" in target and _BROKEN_ESCAPE.search(target)):
        raise MalformedRequest("the path or query of the request is not percent-encoded")
    if b"%" in target and _ESCAPED_NON_ASCII.search(target):
        try:
            unquote_to_bytes(target).decode()
        except UnicodeDecodeError:
            raise MalformedRequest("the path or query of the request is not UTF-8") from None
    return target


def _without_host(target: bytes, headers: Headers) -> bytes:
    """Return the path and query of an absolute target, which must name the same host as `Host`, or replaces it."""
    absolute = _ABSOLUTE.match(target)
    if absolute is None:
        raise MalformedRequest("the target of a request must be a path or a URL of http or https")
    scheme, host, hosts = absolute[1].lower(), absolute[2], [value for name, value in headers if name == b"host"]
    if not hosts:
        headers.append((b"host", host))
    elif _without_port(host, scheme) != _without_port(hosts[0], scheme):
        raise MalformedRequest("the target of the request and its Host header name different hosts")
    rest = target[absolute.end(2) :]
    return rest if rest[:1] == b"/" else b"/" + rest


def _without_port(host: bytes, scheme: bytes) -> bytes:
    """Return a host in lower case, without the default port of the scheme."""
    return host.lower().removesuffix(_DEFAULT_PORTS[scheme])
