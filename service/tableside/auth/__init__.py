"""Authentication and permissions.

A caller has a static token or a token that an issuer has signed (OpenID Connect, Kubernetes). Permissions are patterns
of the tables that the caller may read and write. Imports `core` and `telemetry`.
"""

from .authenticator import Auth, Unauthenticated
from .key_source import KeysMissing
from .permissions import COMPANION, UNRESTRICTED, Caller, Forbidden, Permission, refusals_of
from .settings import AuthSettings, IssuerSettings, Tokens, TokenSettings
from .signed_tokens import TOKEN_BYTES_MAX, TokenRejected

__all__ = [
    "COMPANION",
    "TOKEN_BYTES_MAX",
    "UNRESTRICTED",
    "Auth",
    "AuthSettings",
    "Caller",
    "Forbidden",
    "IssuerSettings",
    "KeysMissing",
    "Permission",
    "TokenRejected",
    "TokenSettings",
    "Tokens",
    "Unauthenticated",
    "refusals_of",
]
