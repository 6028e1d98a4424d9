"""Authentication and permissions.

A caller has a static token or a token that an issuer has signed (OpenID Connect, Kubernetes). Permissions are patterns
of the tables that the caller may read and write. Imports `core` and `telemetry`.
"""

from .authenticator import Auth, Unauthenticated
from .claim_rules import VerifiedToken
from .issuers import Issuers
from .jwt_header import TOKEN_BYTES_MAX
from .key_source import IssuerUnavailable, KeysMissing
from .metrics import IssuerMetrics
from .permissions import ANONYMOUS, UNRESTRICTED, Caller, Forbidden, with_refusals
from .refusals import TokenRejected
from .settings import (
    ALGORITHMS,
    ISSUERS_MAX,
    PATTERNS_MAX,
    RULES_MAX,
    TOKENS_MAX,
    Algorithm,
    AuthSettings,
    IssuerSettings,
    RuleSettings,
    Tokens,
    TokenSettings,
    checked_url,
    is_loopback,
)

__all__ = [
    "ALGORITHMS",
    "ANONYMOUS",
    "ISSUERS_MAX",
    "PATTERNS_MAX",
    "RULES_MAX",
    "TOKENS_MAX",
    "TOKEN_BYTES_MAX",
    "UNRESTRICTED",
    "Algorithm",
    "Auth",
    "AuthSettings",
    "Caller",
    "Forbidden",
    "IssuerMetrics",
    "IssuerSettings",
    "IssuerUnavailable",
    "Issuers",
    "KeysMissing",
    "RuleSettings",
    "TokenRejected",
    "TokenSettings",
    "Tokens",
    "Unauthenticated",
    "VerifiedToken",
    "checked_url",
    "is_loopback",
    "with_refusals",
]
