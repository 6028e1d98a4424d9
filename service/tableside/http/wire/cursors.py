"""Cursors and splits as callers see them: opaque, and good only for the scan that they were made for."""

import base64
import binascii
import hashlib

from ...core import MalformedRequest

_DIGEST_BYTES = 8


def seal(position: bytes, *scope: object) -> str:
    """Return text that says where a scan is, and of which scan that is true."""
    return base64.urlsafe_b64encode(_digest(position, scope) + position).decode().rstrip("=")


def open_sealed(text: str, what: str, *scope: object) -> bytes:
    """Return what was sealed. Raise MalformedRequest if it was not sealed here for that scan."""
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise MalformedRequest(f"no {what} of this scan") from None
    digest, position = raw[:_DIGEST_BYTES], raw[_DIGEST_BYTES:]
    if digest != _digest(position, scope):
        raise MalformedRequest(f"no {what} of this scan")
    return position


def _digest(position: bytes, scope: tuple[object, ...]) -> bytes:
    # Not a secret: it finds mistakes, and a cursor opens nothing that its caller could not ask for.
    return hashlib.blake2b(repr((scope, position)).encode(), digest_size=_DIGEST_BYTES).digest()
