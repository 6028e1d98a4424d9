"""Rules that map the claims of a verified token to the caller's name and permissions."""

from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any
from urllib.parse import quote

import msgspec

from .permissions import compiled_patterns
from .settings import IssuerSettings, RuleSettings

NAME_LENGTH_MAX = 200
"""Maximum length of the part of a caller's name that comes from a token. Longer ones are cut, and a digest is added."""


class VerifiedToken(msgspec.Struct, frozen=True):
    """The caller of a verified token: name, permissions, and the token's expiry (Unix seconds)."""

    name: str
    read: tuple[str, ...]
    write: tuple[str, ...]
    admin: bool
    until: float


class ClaimRules:
    """The rules of one configured issuer."""

    def __init__(self, settings: IssuerSettings) -> None:
        self._issuer = settings.issuer
        self._name = _parts(settings.name_claim)
        self._rules = [_Rule(rule) for rule in settings.rules]

    def apply(self, claims: Mapping[str, Any], until: float) -> VerifiedToken | None:
        """Return the union of the permissions of all matching rules, which may be empty.

        Return None if the claims contain no caller's name.
        """
        subject = _found(claims, self._name)
        if not isinstance(subject, str) or not subject:
            return None
        given = [rule.settings for rule in self._rules if rule.matches(claims)]
        return VerifiedToken(
            caller_name(self._issuer, subject),
            tuple(dict.fromkeys(pattern for rule in given for pattern in rule.read)),
            tuple(dict.fromkeys(pattern for rule in given for pattern in rule.write)),
            any(rule.admin for rule in given),
            until,
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


class _Rule:
    def __init__(self, settings: RuleSettings) -> None:
        self.settings = settings
        self._claims = [(_parts(path), compiled_patterns(patterns)) for path, patterns in settings.claims.items()]

    def matches(self, claims: Mapping[str, Any]) -> bool:
        return all(any(pattern.match(text) for text in _texts(_found(claims, path))) for path, pattern in self._claims)


def _parts(path: str) -> tuple[str, ...]:
    """Return the member names on the path to a claim."""
    if path.startswith("/"):
        return tuple(part.replace("~1", "/").replace("~0", "~") for part in path[1:].split("/"))
    return tuple(path.split("."))


def _found(claims: Mapping[str, Any], path: tuple[str, ...]) -> object:
    found: object = claims
    for part in path:
        if not isinstance(found, dict):
            return None
        found = found.get(part)
    return found


def _texts(claim: object) -> Iterator[str]:
    """Return the strings of a claim that patterns can match: the claim itself, or the strings in a list."""
    yield from (one for one in (claim if isinstance(claim, list) else [claim]) if isinstance(one, str))
