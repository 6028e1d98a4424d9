"""A token, and those who may verify it, to what its caller may do: or why it is not taken.

The signature and the times, the issuer and the audience are the library's to verify (PyJWT); which key and which
algorithms it is given is decided here, by the configuration and by the keys, and by the token among those only.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import jwt
from jwt.exceptions import InvalidSubjectError

from .claim_rules import Rules, Verified
from .jwks import Key
from .jwt_header import Head, looks_signed, read
from .key_source import KeysMissing, Source
from .refusals import Reason, Refused
from .settings import IssuerSettings

_LATEST = 2.0**53
"""Later than any time that a token needs."""

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

    def __init__(self, settings: IssuerSettings, source: Source) -> None:
        self.settings = settings
        self._source = source
        self._rules = Rules(settings)

    def verify(self, token: bytes, head: Head) -> Verified:
        """Return what the token gives a right to. Raise Refused, or KeysMissing."""
        if head.alg not in self.settings.algorithms:
            raise Refused("algorithm")
        claims = self._claims(token, head.alg, self._key(head))
        until = min(float(min(int(claims["exp"]), _LATEST)) + self.settings.leeway_s, _LATEST)
        if (verified := self._rules.applied(claims, until)) is None:
            raise Refused("claims")
        return verified

    def _key(self, head: Head) -> Key:
        """Return the one key that the token may be signed with."""
        if (keys := self._source.keys) is None:
            raise KeysMissing(self._source)
        fitting = keys.fitting(head.alg)
        if head.kid is not None:
            if not (named := keys.named(head.kid)):
                raise KeysMissing(self._source)
            fitting = [key for key in named if key in fitting]
        if len(fitting) != 1:
            raise Refused("key")
        return fitting[0]

    def _claims(self, token: bytes, algorithm: str, key: Key) -> dict[str, Any]:
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
            raise Refused(_reason(error)) from None


def verified(token: bytes, verifiers: Mapping[str, Sequence[Verifier]]) -> Verified | None:
    """Return what a token gives a right to, None if it is no signed one. Raise Refused, or KeysMissing.

    Who verifies it is chosen, among those that are configured, by who it says made it, and for whom.
    """
    if not looks_signed(token):
        return None
    head, claimed = read(token)
    if (of_issuer := verifiers.get(claimed.iss)) is None:
        raise Refused("issuer")
    audience = claimed.audience
    for verifier in of_issuer:
        if any(each in verifier.settings.audience for each in audience):
            return verifier.verify(token, head)
    raise Refused("audience")


def _reason(error: jwt.PyJWTError) -> Reason:
    return next((reason for kind, reason in _REASONS if isinstance(error, kind)), "malformed")
