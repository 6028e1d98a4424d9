"""Cursors and splits as clients see them: opaque text that is valid only for the scan that created it."""

import base64
import binascii
import hashlib

from ...core import MalformedRequest

_DIGEST_BYTES = 8


def seal(position: bytes, *scope: object) -> str:
    """Return a position as opaque text that is bound to the scan described by `scope`."""
    return base64.urlsafe_b64encode(_digest(position, scope) + position).decode().rstrip("=")


def open_sealed(text: str, what: str, *scope: object) -> bytes:
    """Return the sealed position. Raise MalformedRequest if the text was not sealed for this scope."""
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise MalformedRequest(f"not a {what} of this scan") from None
    digest, position = raw[:_DIGEST_BYTES], raw[_DIGEST_BYTES:]
    if digest != _digest(position, scope):
        raise MalformedRequest(f"not a {what} of this scan")
    return position


def _digest(position: bytes, scope: tuple[object, ...]) -> bytes:
    # The digest detects mistakes and needs no secret: a cursor gives access to nothing that its caller cannot scan.
    return hashlib.blake2b(repr((scope, position)).encode(), digest_size=_DIGEST_BYTES).digest()
