"""Parse the unverified parts of a token that select its verifier: the header, the issuer and the audience.

The token is untrusted input. Its size is checked first, and parsing takes a few microseconds.
"""

import re
from base64 import urlsafe_b64decode

import msgspec

from .refusals import TokenRejected

TOKEN_BYTES_MAX = 16 * 1024

KID_LENGTH_MAX = 1024

_TYPES = frozenset({None, "jwt", "at+jwt", "application/jwt", "application/at+jwt"})
"""Accepted values of `typ` (RFC 8725, 3.11), in lower case. Other types have other purposes, such as `logout+jwt`."""

_COMPACT = re.compile(rb"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]*)")


class Header(msgspec.Struct, frozen=True):
    """The token's header. Other members are ignored."""

    alg: str
    kid: str | None = None
    typ: str | None = None
    crit: object = None


class UnverifiedClaims(msgspec.Struct, frozen=True):
    """The claims that select the verifier: issuer and audience. They are not verified yet."""

    iss: str
    aud: str | list[str]

    @property
    def audience(self) -> list[str]:
        """The audience as a list."""
        return [self.aud] if isinstance(self.aud, str) else self.aud


def looks_signed(token: bytes) -> bool:
    """Return whether the token consists of three parts separated by dots, as signed tokens do."""
    return token.count(b".") == 2


def parse_header(token: bytes) -> tuple[Header, UnverifiedClaims]:
    """Return the header and the unverified claims. Raise TokenRejected if the token is malformed."""
    if len(token) > TOKEN_BYTES_MAX:
        raise TokenRejected("too_long")
    if (match := _COMPACT.fullmatch(token)) is None:
        raise TokenRejected("malformed")
    try:
        head = _HEAD.decode(_decoded(match[1]))
        claimed = _CLAIMED.decode(_decoded(match[2]))
    except (ValueError, RecursionError):
        raise TokenRejected("malformed") from None
    typ = head.typ.lower() if head.typ is not None else None
    if head.crit is not None or typ not in _TYPES or len(head.kid or "") > KID_LENGTH_MAX:
        raise TokenRejected("malformed")
    return head, claimed


def _decoded(part: bytes) -> bytes:
    return urlsafe_b64decode(part + b"=" * (-len(part) % 4))


_HEAD = msgspec.json.Decoder(Header)
_CLAIMED = msgspec.json.Decoder(UnverifiedClaims)
