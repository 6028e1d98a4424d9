"""Checks of a request's head that a lenient parser omits, so that every proxy reads the request as the service does."""

import re
from collections.abc import Sequence
from urllib.parse import unquote_to_bytes

from ..core import MalformedRequest

REQUEST_LINE = re.compile(rb"\S+ \S+ HTTP/1\.[01]\r\n")
"""One space between the parts, and no other protocol, such as RTSP."""

Headers = list[tuple[bytes, bytes]]

PLAIN_TARGET = re.compile(rb'/[!-"$&-~]*+(?:%[0-7][0-9A-Fa-f][!-"$&-~]*+)*+')
"""A path and query that needs no other check: ASCII without a fragment, and ASCII in its escapes."""

_ABSOLUTE = re.compile(rb"(https?)://([^/?#@]+)(?:[/?#]|$)", re.IGNORECASE)
_BROKEN_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_ESCAPED_NON_ASCII = re.compile(rb"%[89A-Fa-f]")
_DEFAULT_PORTS = {b"http": b":80", b"https": b":443"}


def check_head(version: str, url: bytes, names: Sequence[bytes], headers: Headers) -> bytes:
    """Return the path and query of a request. Raise MalformedRequest if its target or `Host` is not valid.

    A request has one `Host`. With HTTP/1.0 it may have none. `names` are the names of `headers`, in lower case.
    """
    hosts = names.count(b"host")
    if hosts > 1 or (not hosts and version == "1.1"):
        raise MalformedRequest("a request must have one Host header")
    if PLAIN_TARGET.fullmatch(url):
        return url
    if url[:1] != b"/":
        url = _without_host(url, headers)
    if b"#" in url:
        raise MalformedRequest("the target of a request must not have a fragment")
    if b"%" in url or not url.isascii():
        _check_encoding(url)
    return url


def _without_host(url: bytes, headers: Headers) -> bytes:
    """Return the path and query of an absolute target, which must name the same host as `Host`, or replaces it."""
    target = _ABSOLUTE.match(url)
    if target is None:
        raise MalformedRequest("the target of a request must be a path or a URL of http or https")
    scheme, host, hosts = target[1].lower(), target[2], [value for name, value in headers if name == b"host"]
    if not hosts:
        headers.append((b"host", host))
    elif _without_port(host, scheme) != _without_port(hosts[0], scheme):
        raise MalformedRequest("the target of the request and its Host header name different hosts")
    rest = url[target.end(2) :]
    return rest if rest[:1] == b"/" else b"/" + rest


def _without_port(host: bytes, scheme: bytes) -> bytes:
    """Return a host in lower case, without the default port of the scheme."""
    return host.lower().removesuffix(_DEFAULT_PORTS[scheme])


def _check_encoding(url: bytes) -> None:
    if not url.isascii() or _BROKEN_ESCAPE.search(url):
        raise MalformedRequest("the path or query of the request is not percent-encoded")
    if _ESCAPED_NON_ASCII.search(url):
        try:
            unquote_to_bytes(url).decode()
        except UnicodeDecodeError:
            raise MalformedRequest("the path or query of the request is not UTF-8") from None
