"""Authentication and permissions.

A caller has a static token or a token that an issuer has signed (OpenID Connect, Kubernetes). Permissions are patterns
of the tables that the caller may read and write. Imports `core` and `telemetry`.
"""

from .authenticator import Auth, Unauthenticated
from .claim_rules import VerifiedToken
from .key_source import IssuerMetrics, KeysMissing
from .permissions import UNRESTRICTED, Caller, Forbidden, Permission, refusals_of
from .settings import AuthSettings, IssuerSettings, Tokens, TokenSettings
from .signed_tokens import TOKEN_BYTES_MAX, Issuers, TokenRejected

__all__ = [
    "TOKEN_BYTES_MAX",
    "UNRESTRICTED",
    "Auth",
    "AuthSettings",
    "Caller",
    "Forbidden",
    "IssuerMetrics",
    "IssuerSettings",
    "Issuers",
    "KeysMissing",
    "Permission",
    "TokenRejected",
    "TokenSettings",
    "Tokens",
    "Unauthenticated",
    "VerifiedToken",
    "refusals_of",
]
