"""What a token says of itself, read before anything of it is believed: enough to choose who verifies it.

It may be anything that a stranger sends, so it is bounded first, and what takes it apart takes a few microseconds.
"""

import re
from base64 import urlsafe_b64decode

import msgspec

from .refusals import Refused

TOKEN_BYTES_MAX = 16 * 1024

KID_LENGTH_MAX = 1024

_TYPES = frozenset({None, "jwt", "at+jwt", "application/jwt", "application/at+jwt"})
"""What a token may be by its own account (RFC 8725, 3.11), in lower case; others have other ends, as `logout+jwt`."""

_COMPACT = re.compile(rb"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]*)")


class Head(msgspec.Struct, frozen=True):
    """The header: what the token claims to be signed with. What else a header may have is not looked at."""

    alg: str
    kid: str | None = None
    typ: str | None = None
    crit: object = None


class Claimed(msgspec.Struct, frozen=True):
    """Of the claims, who made the token and for whom."""

    iss: str
    aud: str | list[str]

    @property
    def audience(self) -> list[str]:
        """For whom it is."""
        return [self.aud] if isinstance(self.aud, str) else self.aud


def looks_signed(token: bytes) -> bool:
    """Return whether these are three parts joined by dots, as of a token that is signed."""
    return token.count(b".") == 2


def read(token: bytes) -> tuple[Head, Claimed]:
    """Return the header and the claims that choose who verifies the token. Raise Refused if it has none."""
    if len(token) > TOKEN_BYTES_MAX:
        raise Refused("too_long")
    if (match := _COMPACT.fullmatch(token)) is None:
        raise Refused("malformed")
    try:
        head = _HEAD.decode(_decoded(match[1]))
        claimed = _CLAIMED.decode(_decoded(match[2]))
    except (ValueError, RecursionError):
        raise Refused("malformed") from None
    typ = head.typ.lower() if head.typ is not None else None
    if head.crit is not None or typ not in _TYPES or len(head.kid or "") > KID_LENGTH_MAX:
        raise Refused("malformed")
    return head, claimed


def _decoded(part: bytes) -> bytes:
    return urlsafe_b64decode(part + b"=" * (-len(part) % 4))


_HEAD = msgspec.json.Decoder(Head)
_CLAIMED = msgspec.json.Decoder(Claimed)
