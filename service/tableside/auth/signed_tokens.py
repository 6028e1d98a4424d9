"""Verify the signed tokens of all configured issuers, and derive callers and permissions from their claims by rules.

PyJWT verifies the signature, the times, the issuer and the audience. This module chooses the key and the algorithm that
PyJWT may use: the token selects only among algorithms that the configuration and the issuer's keys allow.
"""

import re
from base64 import urlsafe_b64decode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any
from urllib.parse import quote

import jwt
import msgspec
from jwt.exceptions import InvalidSubjectError

from .key_source import KeysMissing, KeySource
from .keys import PublicKey
from .permissions import Caller, compiled_patterns
from .settings import IssuerSettings

NAME_LENGTH_MAX = 200
"""Maximum length of the part of a caller's name that comes from a token. Longer ones are cut, and a digest is added."""


class ClaimRules:
    """The rules of one configured issuer."""

    def __init__(self, settings: IssuerSettings) -> None:
        self._issuer = settings.issuer
        self._name = _parts(settings.name_claim)
        self._rules = [
            (rule, [(_parts(path), compiled_patterns(patterns)) for path, patterns in rule.claims.items()])
            for rule in settings.rules
        ]

    def apply(self, claims: Mapping[str, Any], until: float) -> Caller | None:
        """Return the union of the permissions of all matching rules, or None if the claims contain no caller's name."""
        subject = _found(claims, self._name)
        if not isinstance(subject, str) or not subject:
            return None
        given = [rule for rule, wanted in self._rules if all(_matches(claims, *each) for each in wanted)]
        return Caller(
            caller_name(self._issuer, subject),
            (pattern for rule in given for pattern in rule.read),
            (pattern for rule in given for pattern in rule.write),
            admin=any(rule.admin for rule in given),
            until=until,
        )


def caller_name(issuer: str, subject: str) -> str:
    """Return a caller's name that is unique among all subjects, issuers and configured tokens.

    It is unique because names of configured issuers and tokens contain no `#`. Characters that are unsafe in a log line
    are percent-encoded.
    """
    text = quote(subject, safe=":/@|,=-._", errors="surrogatepass")
    if len(text) > NAME_LENGTH_MAX:
        digest = sha256(subject.encode(errors="surrogatepass")).hexdigest()[:32]
        text = f"{text[:NAME_LENGTH_MAX]}+{digest}"
    return f"{issuer}#{text}"


def _parts(path: str) -> tuple[str, ...]:
    """Return the member names on the path to a claim."""
    if path.startswith("/"):
        return tuple(part.replace("~1", "/").replace("~0", "~") for part in path[1:].split("/"))
    return tuple(path.split("."))


def _found(claims: Mapping[str, Any], path: tuple[str, ...]) -> object:
    found: object = claims
    for part in path:
        found = found.get(part) if isinstance(found, dict) else None
    return found


def _matches(claims: Mapping[str, Any], path: tuple[str, ...], pattern: re.Pattern[str]) -> bool:
    """Return whether a claim, or an element of a list, is a string that matches."""
    claim = _found(claims, path)
    texts = claim if isinstance(claim, list) else [claim]
    return any(isinstance(text, str) and pattern.match(text) for text in texts)


TOKEN_BYTES_MAX = 16 * 1024
KID_LENGTH_MAX = 1024

_TYPES = frozenset({None, "jwt", "at+jwt", "application/jwt", "application/at+jwt"})
"""Accepted values of `typ` (RFC 8725, 3.11), in lower case. Other types have other purposes, such as `logout+jwt`."""

_COMPACT = re.compile(rb"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]*)")

_LATEST = 2.0**53
"""A time later than any reasonable expiry. It limits `exp` to the range of exact doubles."""

_REASONS: dict[type[Exception], str] = {
    jwt.ExpiredSignatureError: "expired",
    jwt.ImmatureSignatureError: "not_yet_valid",
    jwt.InvalidSignatureError: "signature",
    jwt.InvalidAudienceError: "audience",
    jwt.InvalidIssuerError: "issuer",
    jwt.InvalidAlgorithmError: "algorithm",
    jwt.MissingRequiredClaimError: "claims",
    jwt.InvalidIssuedAtError: "claims",
    InvalidSubjectError: "claims",
}


class TokenRejected(Exception):
    """A token is rejected. The reason is counted in a metric, contains nothing of the token, and is not sent."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Header(msgspec.Struct, frozen=True):
    """The header of a token. Other members are ignored."""

    alg: str
    kid: str | None = None
    typ: str | None = None
    crit: object = None


class UnverifiedClaims(msgspec.Struct, frozen=True):
    """The claims that select the verifier: issuer and audience. They are not verified yet."""

    iss: str
    aud: str | list[str]


def verify_token(token: bytes, verifiers: "Mapping[str, Sequence[Verifier]]") -> Caller | None:
    """Verify a token. Return None if it does not have the three parts of a signed token, or there are no verifiers.

    Raise TokenRejected, or KeysMissing. The token's issuer and audience select one of the `verifiers`.
    """
    if not verifiers or token.count(b".") != 2:
        return None
    header, claims = parse_header(token)
    if (of_issuer := verifiers.get(claims.iss)) is None:
        raise TokenRejected("issuer")
    audience = [claims.aud] if isinstance(claims.aud, str) else claims.aud
    for verifier in of_issuer:
        if any(each in verifier.settings.audience for each in audience):
            return verifier.verify(token, header)
    raise TokenRejected("audience")


def parse_header(token: bytes) -> tuple[Header, UnverifiedClaims]:
    """Return the header and the unverified claims of untrusted input. Raise TokenRejected if it is malformed."""
    if len(token) > TOKEN_BYTES_MAX:  # first, so that parsing takes a few microseconds
        raise TokenRejected("too_long")
    if (match := _COMPACT.fullmatch(token)) is None:
        raise TokenRejected("malformed")
    try:
        header = _HEADER.decode(_decoded(match[1]))
        claims = _CLAIMS.decode(_decoded(match[2]))
    except (ValueError, RecursionError):
        raise TokenRejected("malformed") from None
    typ = header.typ.lower() if header.typ is not None else None
    if header.crit is not None or typ not in _TYPES or len(header.kid or "") > KID_LENGTH_MAX:
        raise TokenRejected("malformed")
    return header, claims


def _decoded(part: bytes) -> bytes:
    return urlsafe_b64decode(part + b"=" * (-len(part) % 4))


_HEADER = msgspec.json.Decoder(Header)
_CLAIMS = msgspec.json.Decoder(UnverifiedClaims)


class Verifier:
    """Verifies the tokens of one issuer for its audience."""

    def __init__(self, settings: IssuerSettings, source: KeySource) -> None:
        self.settings = settings
        self._source = source
        self._rules = ClaimRules(settings)

    def verify(self, token: bytes, header: Header) -> Caller:
        """Verify a token and return its caller's permissions. Raise TokenRejected, or KeysMissing."""
        if header.alg not in self.settings.algorithms:
            raise TokenRejected("algorithm")
        key = self._key(header)
        try:
            claims = jwt.decode(
                token,
                key.public,
                algorithms=[header.alg],
                audience=self.settings.audience,
                issuer=self.settings.issuer,
                leeway=self.settings.leeway_s,
                options={"require": ["exp", "iss", "aud"]},
            )
        except jwt.PyJWTError as error:
            raise TokenRejected(_REASONS.get(type(error), "malformed")) from None
        until = min(float(min(int(claims["exp"]), _LATEST)) + self.settings.leeway_s, _LATEST)
        if (verified := self._rules.apply(claims, until)) is None:
            raise TokenRejected("claims")
        return verified

    def _key(self, header: Header) -> PublicKey:
        """Return the only key that may verify the token. Raise TokenRejected if there are several."""
        keys = self._source.keys
        named = [] if keys is None else [key for key in keys.keys if header.kid in (None, key.kid)]
        if keys is None or (header.kid is not None and not named):
            raise KeysMissing(self._source)
        fitting = [key for key in named if header.alg in key.algorithms]
        if len(fitting) != 1:
            raise TokenRejected("key")
        return fitting[0]
