"""The reasons for rejecting a token. They are counted in a metric, and never sent to the client."""

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


class TokenRejected(Exception):
    """A token is rejected. The reason contains nothing of the token."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason: Reason = reason
