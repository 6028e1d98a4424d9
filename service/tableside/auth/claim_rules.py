"""From the claims of a token that was verified to what its caller may do, and to the caller's name."""

import re
from collections.abc import Iterator, Mapping
from fnmatch import translate
from hashlib import sha256
from typing import Any
from urllib.parse import quote

import msgspec

from .settings import IssuerSettings, RuleSettings

NAME_LENGTH_MAX = 200
"""How long the part of a caller's name is that a token gives; a longer one is cut, and told apart by a digest."""


class Verified(msgspec.Struct, frozen=True):
    """Who a token says is asking, what that gives a right to, and until when by the clock on the wall."""

    name: str
    read: tuple[str, ...]
    write: tuple[str, ...]
    admin: bool
    until: float


class Rules:
    """The rules of an issuer for one audience."""

    def __init__(self, settings: IssuerSettings) -> None:
        self._issuer = settings.issuer
        self._name = _parts(settings.name_claim)
        self._rules = [_Rule(rule) for rule in settings.rules]

    def applied(self, claims: Mapping[str, Any], until: float) -> Verified | None:
        """Return what all matching rules together give, which may be nothing; None if the claims name nobody."""
        subject = _found(claims, self._name)
        if not isinstance(subject, str) or not subject:
            return None
        given = [rule.settings for rule in self._rules if rule.matches(claims)]
        return Verified(
            name_of(self._issuer, subject),
            tuple(dict.fromkeys(pattern for rule in given for pattern in rule.read)),
            tuple(dict.fromkeys(pattern for rule in given for pattern in rule.write)),
            any(rule.admin for rule in given),
            until,
        )


def name_of(issuer: str, subject: str) -> str:
    """Return a caller's name, which no other subject, no other issuer's and no configured token has.

    Neither an issuer nor a token that is configured has a `#` in its name. What could not stand in a line of a log as
    it is, is percent-encoded.
    """
    text = quote(subject, safe=":/@|,=-._", errors="surrogatepass")
    if len(text) > NAME_LENGTH_MAX:
        told_apart_by = sha256(subject.encode(errors="surrogatepass")).hexdigest()[:32]
        text = f"{text[:NAME_LENGTH_MAX]}+{told_apart_by}"
    return f"{issuer}#{text}"


class _Rule:
    def __init__(self, settings: RuleSettings) -> None:
        self.settings = settings
        self._claims = [(_parts(path), _any_of(patterns)) for path, patterns in settings.claims.items()]

    def matches(self, claims: Mapping[str, Any]) -> bool:
        return all(any(pattern.match(text) for text in _texts(_found(claims, path))) for path, pattern in self._claims)


def _any_of(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(map(translate, patterns)))


def _parts(path: str) -> tuple[str, ...]:
    """Return the names on the way to a claim."""
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
    """Return what of a claim can match: a text, or the texts of a list."""
    yield from (one for one in (claim if isinstance(claim, list) else [claim]) if isinstance(one, str))
