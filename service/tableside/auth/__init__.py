"""Authentication and permissions.

A caller has a static token or a token that an issuer has signed (OpenID Connect, Kubernetes). Permissions are patterns
of the tables that the caller may read and write. Imports `core` and `telemetry`. An import with `as` exports its name.
"""

from .authenticator import Auth as Auth, Unauthenticated as Unauthenticated
from .key_source import KeysMissing as KeysMissing
from .permissions import (
    COMPANION as COMPANION,
    UNRESTRICTED as UNRESTRICTED,
    Caller as Caller,
    Forbidden as Forbidden,
    refusals_of as refusals_of,
)
from .settings import AuthSettings as AuthSettings, Tokens as Tokens, TokenSettings as TokenSettings
from .signed_tokens import TOKEN_BYTES_MAX as TOKEN_BYTES_MAX, TokenRejected as TokenRejected
