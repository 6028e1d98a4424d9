"""The head of an HTTP/1.x request: its parts, and checks that let every proxy read it as the service does."""

import re
from collections.abc import Sequence
from urllib.parse import unquote_to_bytes

import msgspec

from ..core import MalformedRequest, TooLarge

HEADERS_MAX = 128

Headers = list[tuple[bytes, bytes]]

REQUEST_LINE = re.compile(rb"([A-Z][A-Z-]{0,31}) ([^\x00-\x20\x7f]+) HTTP/(1\.[01])\r\n")
"""One space between the parts, and no other protocol, such as RTSP."""

_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([^\x00-\x08\x0a-\x1f\x7f]*)\r\n")

_LENGTH = re.compile(rb"[0-9]{1,20}")
"""A Content-Length. Leading zeros are valid, but Python converts only 4,300 digits."""

_PLAIN_TARGET = re.compile(rb'/[!-"$&-~]*+(?:%[0-7][0-9A-Fa-f][!-"$&-~]*+)*+')
"""A path and query that needs no other check: ASCII without a fragment, and ASCII in its escapes."""

_ABSOLUTE = re.compile(rb"(https?)://([^/?#@]+)(?:[/?#]|$)", re.IGNORECASE)
_BROKEN_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_ESCAPED_NON_ASCII = re.compile(rb"%[89A-Fa-f]")
_DEFAULT_PORTS = {b"http": b":80", b"https": b":443"}


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
    line = REQUEST_LINE.match(text)
    if line is None:
        raise malformed()
    lines = _HEADER.findall(text, line.end())
    if line.end() + sum([len(name) + len(value) + 3 for name, value in lines]) + 2 != len(text):
        raise malformed()  # Another text is between the headers.
    if len(lines) > HEADERS_MAX:
        raise TooLarge(f"a request may have {HEADERS_MAX} headers")
    headers = [(name.lower(), value.strip(b" \t")) for name, value in lines]
    names = [name for name, _ in headers]
    method, target, version = line[1].decode(), line[2], line[3].decode()
    if method == "CONNECT":
        raise malformed()
    body_bytes = _body_bytes(headers, names, version)
    if names.count(b"host") != 1 or _PLAIN_TARGET.fullmatch(target) is None:
        target = _checked_target(target, version, names, headers)
    return RequestHead(
        method,
        target,
        version,
        headers,
        body_bytes,
        keep_alive=version == "1.1" and b"close" not in _listed(b"connection", headers, names),
        expects_continue=version == "1.1" and b"100-continue" in _listed(b"expect", headers, names),
    )


def malformed() -> MalformedRequest:
    """Return the error for a request that does not have the syntax of HTTP/1.1."""
    return MalformedRequest("the request is not valid HTTP/1.1")


def _listed(wanted: bytes, headers: Headers, names: Sequence[bytes]) -> list[bytes]:
    """Return the elements of a header's comma-separated values, in lower case."""
    if wanted not in names:
        return []
    values = b",".join([value for name, value in headers if name == wanted])
    return [element.strip(b" \t") for element in values.lower().split(b",")]


def _body_bytes(headers: Headers, names: Sequence[bytes], version: str) -> int | None:
    """Return the length of the body, or None if it consists of chunks. Any ambiguity is malformed."""
    codings = _listed(b"transfer-encoding", headers, names)
    lengths = names.count(b"content-length")
    if codings:
        if lengths or version == "1.0" or codings[-1] != b"chunked" or b"chunked" in codings[:-1]:
            raise malformed()
        return None
    if lengths == 0:
        return 0
    text = headers[names.index(b"content-length")][1]
    if lengths > 1 or _LENGTH.fullmatch(text) is None:
        raise malformed()
    return int(text)


def _checked_target(target: bytes, version: str, names: Sequence[bytes], headers: Headers) -> bytes:
    """Return the path and query of a request. Raise MalformedRequest if its target or `Host` is not valid.

    A request has one `Host`. With HTTP/1.0 it may have none.
    """
    hosts = names.count(b"host")
    if hosts > 1 or (not hosts and version == "1.1"):
        raise MalformedRequest("a request must have one Host header")
    if target[:1] != b"/":
        target = _without_host(target, headers)
    if b"#" in target:
        raise MalformedRequest("the target of a request must not have a fragment")
    if not target.isascii() or _BROKEN_ESCAPE.search(target):
        raise MalformedRequest("the path or query of the request is not percent-encoded")
    if _ESCAPED_NON_ASCII.search(target):
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
