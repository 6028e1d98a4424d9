"""Verify signed tokens, and derive the caller's permissions from their claims.

PyJWT verifies the signature, the times, the issuer and the audience. This module chooses the key and the algorithm that
PyJWT may use: the token selects only among algorithms that the configuration and the issuer's keys allow.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import jwt
from jwt.exceptions import InvalidSubjectError

from .claim_rules import ClaimRules, VerifiedToken
from .jwks import PublicKey
from .jwt_header import Header, looks_signed, parse_header
from .key_source import KeysMissing, KeySource
from .refusals import Reason, TokenRejected
from .settings import IssuerSettings

_LATEST = 2.0**53
"""A time later than any reasonable expiry. It limits `exp` to the range of exact doubles."""

_REASONS: tuple[tuple[type[Exception], Reason], ...] = (
    (jwt.ExpiredSignatureError, "expired"),
    (jwt.ImmatureSignatureError, "not_yet_valid"),
    (jwt.InvalidSignatureError, "signature"),
    (jwt.InvalidAudienceError, "audience"),
    (jwt.InvalidIssuerError, "issuer"),
    (jwt.InvalidAlgorithmError, "algorithm"),
    (jwt.MissingRequiredClaimError, "claims"),
    (jwt.InvalidIssuedAtError, "claims"),
    (InvalidSubjectError, "claims"),
)


class Verifier:
    """Verifies the tokens of one issuer for its audience."""

    def __init__(self, settings: IssuerSettings, source: KeySource) -> None:
        self.settings = settings
        self._source = source
        self._rules = ClaimRules(settings)

    def verify(self, token: bytes, head: Header) -> VerifiedToken:
        """Verify a token and return its caller's permissions. Raise TokenRejected, or KeysMissing."""
        if head.alg not in self.settings.algorithms:
            raise TokenRejected("algorithm")
        claims = self._claims(token, head.alg, self._key(head))
        until = min(float(min(int(claims["exp"]), _LATEST)) + self.settings.leeway_s, _LATEST)
        if (verified := self._rules.apply(claims, until)) is None:
            raise TokenRejected("claims")
        return verified

    def _key(self, head: Header) -> PublicKey:
        """Return the only key that may verify the token. Raise TokenRejected if there are several."""
        if (keys := self._source.keys) is None:
            raise KeysMissing(self._source)
        fitting = keys.for_algorithm(head.alg)
        if head.kid is not None:
            if not (named := keys.with_kid(head.kid)):
                raise KeysMissing(self._source)
            fitting = [key for key in named if key in fitting]
        if len(fitting) != 1:
            raise TokenRejected("key")
        return fitting[0]

    def _claims(self, token: bytes, algorithm: str, key: PublicKey) -> dict[str, Any]:
        try:
            return jwt.decode(
                token,
                key.public,
                algorithms=[algorithm],
                audience=self.settings.audience,
                issuer=self.settings.issuer,
                leeway=self.settings.leeway_s,
                options={"require": ["exp", "iss", "aud"]},
            )
        except jwt.PyJWTError as error:
            raise TokenRejected(_reason(error)) from None


def verify_token(token: bytes, verifiers: Mapping[str, Sequence[Verifier]]) -> VerifiedToken | None:
    """Verify a token. Return None if it is not a signed token. Raise TokenRejected, or KeysMissing.

    `verifiers` are the configured verifiers by issuer. The token's issuer and audience select one of them.
    """
    if not looks_signed(token):
        return None
    head, claimed = parse_header(token)
    if (of_issuer := verifiers.get(claimed.iss)) is None:
        raise TokenRejected("issuer")
    audience = claimed.audience
    for verifier in of_issuer:
        if any(each in verifier.settings.audience for each in audience):
            return verifier.verify(token, head)
    raise TokenRejected("audience")


def _reason(error: jwt.PyJWTError) -> Reason:
    return next((reason for kind, reason in _REASONS if isinstance(error, kind)), "malformed")
