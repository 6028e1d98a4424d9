"""Why a token is not taken: for counting, never for whoever sent it."""

from typing import TYPE_CHECKING, Literal, TypeAlias

from ..errors import StoreUnavailable

if TYPE_CHECKING:
    from .source import Source

Reason: TypeAlias = Literal[
    "missing",
    "unknown",
    "too_long",
    "malformed",
    "issuer",
    "audience",
    "algorithm",
    "key",
    "signature",
    "expired",
    "not_yet_valid",
    "claims",
]


class Refused(Exception):
    """A token is not taken; the reason says nothing of what is in it."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason: Reason = reason


class KeysMissing(Exception):
    """A token names a key that is not known, or no keys are known yet: the source may have it soon."""

    def __init__(self, source: "Source") -> None:
        super().__init__("the key that a token names is not known here")
        self.source = source


class IssuerUnavailable(StoreUnavailable):
    """The keys that a token would be verified by could not be fetched, so nobody can say whether it is good."""
