"""Why a token is not taken: for counting, never for whoever sent it."""

from typing import Literal, TypeAlias

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
