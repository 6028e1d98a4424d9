"""Settings of authentication: static tokens, issuers of signed tokens, and rules that grant rights on tables."""

import re
from hashlib import sha256
from ipaddress import ip_address
from typing import Annotated, Literal, TypeAlias, get_args
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, SecretStr, model_validator
from pydantic_core import PydanticCustomError

PATTERNS_MAX = 1000
"""Maximum number of table patterns that one caller may read, and that it may write."""

TablePatterns = Annotated[
    tuple[Annotated[str, Field(pattern=r"^[A-Za-z0-9_.*?!\[\]-]{1,200}$")], ...], Field(max_length=PATTERNS_MAX)
]
"""Patterns of table names: `*` matches any text, `?` one character, `[ab]` one of the characters."""

ISSUERS_MAX = 32
AUDIENCES_MAX = 16
RULES_MAX = 100
CLAIMS_MAX = 8
CLAIM_PATTERNS_MAX = 100
"""Maximum number of issuers, of audiences and rules per issuer, of claims in a rule, and of patterns per claim."""

Algorithm: TypeAlias = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
"""Signature algorithms: asymmetric only. With a shared secret, the service itself could create tokens."""

ALGORITHMS: tuple[Algorithm, ...] = get_args(Algorithm)


def _listed(given: object) -> object:
    return (given,) if isinstance(given, str) else given


def checked_url(url: str) -> str:
    """Return a URL that keys may be fetched from: https, or http on loopback. Raise ValueError for others."""
    if not _may_be_fetched(url):
        raise PydanticCustomError(
            "url", "must be an https URL without user and fragment; http is allowed on loopback only"
        )
    return url


def is_loopback(url: str) -> bool:
    """Return whether a URL's host is this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _may_be_fetched(url: str) -> bool:
    try:
        parts = urlsplit(url)
        whole = bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    printable = re.fullmatch(r"[\x21\x22\x24-\x7e]+", url)  # without spaces and `#`, so that there is no fragment
    if not whole or "@" in parts.netloc or not printable:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(url))


def _checked_path(path: str) -> str:
    if not re.fullmatch(r"[^./]+(\.[^./]+){0,7}|(/([^/~]|~[01])*){1,8}", path):
        raise PydanticCustomError(
            "path", "must be names joined by dots, or a JSON pointer such as /kubernetes.io/namespace"
        )
    return path


ClaimPath = Annotated[str, Field(max_length=200), AfterValidator(_checked_path)]
"""The path of a claim: names joined by dots or, for names that contain dots, a JSON pointer (RFC 6901)."""


def _some(given: tuple[object, ...]) -> tuple[object, ...]:
    """Reject an empty tuple. Unlike `min_length`, this adds no fault to those of invalid elements."""
    if not given:
        raise PydanticCustomError("empty", "must have at least one element")
    return given


ClaimPattern = Annotated[str, Field(min_length=1, max_length=1000)]
ClaimPatterns = Annotated[
    tuple[ClaimPattern, ...],
    Field(max_length=CLAIM_PATTERNS_MAX),
    BeforeValidator(_listed, json_schema_input_type=ClaimPattern | tuple[ClaimPattern, ...]),
    AfterValidator(_some),
]

Audience = Annotated[str, Field(min_length=1, max_length=500)]
Audiences = Annotated[
    tuple[Audience, ...],
    Field(max_length=AUDIENCES_MAX),
    BeforeValidator(_listed, json_schema_input_type=Audience | tuple[Audience, ...]),
    AfterValidator(_some),
]


class RuleSettings(BaseModel, frozen=True, extra="forbid"):
    """The permissions of tokens whose claims match: every listed claim must match one of its patterns."""

    claims: Annotated[dict[ClaimPath, ClaimPatterns], Field(min_length=1, max_length=CLAIMS_MAX)]
    read: TablePatterns = ()
    write: TablePatterns = ()
    admin: bool = False


class IssuerSettings(BaseModel, frozen=True, extra="forbid"):
    """An issuer whose tokens are accepted, their audience, and the keys that verify them.

    `jwks_url` is the URL of the keys. Without it, the issuer's discovery document names it (OpenID discovery).
    `ca_file` is for verifying the server of the keys, and `token_file` for authenticating with it. Both are read for
    every fetch.
    """

    issuer: str = Field(pattern=r"^[\x21\x22\x24-\x7e]{1,500}$")
    audience: Audiences
    jwks_url: Annotated[str, Field(max_length=2000), AfterValidator(checked_url)] | None = None
    algorithms: Annotated[tuple[Algorithm, ...], Field(max_length=len(ALGORITHMS)), AfterValidator(_some)] = ALGORITHMS
    leeway_s: float = Field(default=30, ge=0, le=300)
    refresh_s: float = Field(default=300, ge=10, le=21600)
    ca_file: str | None = None
    token_file: str | None = None
    name_claim: ClaimPath = "sub"
    rules: Annotated[tuple[RuleSettings, ...], Field(max_length=RULES_MAX), AfterValidator(_some)]

    @model_validator(mode="after")
    def _check(self) -> "IssuerSettings":
        counts = {
            "claims": sum(len(patterns) for rule in self.rules for patterns in rule.claims.values()),
            "read": sum(len(rule.read) for rule in self.rules),
            "write": sum(len(rule.write) for rule in self.rules),
        }
        for member, count in counts.items():
            if count > PATTERNS_MAX:
                raise ValueError(f"rules have at most {PATTERNS_MAX} patterns in {member}, all together")
        if self.jwks_url is None and self.token_file is not None:
            raise ValueError("token_file requires jwks_url: the service never sends the token to a URL from a document")
        if self.jwks_url is None and ("?" in self.issuer or not _may_be_fetched(self.issuer)):
            raise ValueError("issuer must be an https URL without a query, unless jwks_url is set")
        return self


TOKENS_MAX = 10_000
"""Maximum number of static tokens."""


def _checked_digest(digest: SecretStr) -> SecretStr:
    if not re.fullmatch("[0-9a-fA-F]{64}", text := digest.get_secret_value()):
        raise PydanticCustomError("digest", "must be the SHA-256 digest of a token, in 64 hexadecimal digits")
    if text.lower() == sha256().hexdigest():
        raise PydanticCustomError("digest", "is the digest of an empty token")
    return digest


class TokenSettings(BaseModel, frozen=True, extra="forbid"):
    """A static bearer token, given by its digest: the caller's name, and the tables that it may read and write.

    `admin` gives access to admin endpoints of the service, not to tables.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.@:/-]{0,127}$")
    sha256: Annotated[SecretStr, AfterValidator(_checked_digest)]
    read: TablePatterns = ()
    write: TablePatterns = ()
    admin: bool = False


Tokens = Annotated[tuple[TokenSettings, ...], Field(max_length=TOKENS_MAX)]


class AuthSettings(BaseModel, frozen=True, extra="forbid"):
    """Authentication: static bearer tokens, and issuers of signed tokens.

    `tokens_file` names a YAML file with more entries of `tokens`. `metrics` controls whether /metrics needs an admin's
    token.
    """

    tokens: Tokens = ()
    tokens_file: str | None = None
    issuers: tuple[IssuerSettings, ...] = Field(default=(), max_length=ISSUERS_MAX)
    metrics: Literal["open", "admin"] = "open"
