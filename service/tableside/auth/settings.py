"""Settings of callers: static tokens, issuers of signed tokens, and the rules that give callers rights on tables."""

import re
from ipaddress import ip_address
from typing import Annotated, Literal, TypeAlias, TypeVar
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, SecretStr, model_validator
from pydantic_core import PydanticCustomError

PATTERNS_MAX = 1000
"""How many patterns of tables one caller may read, and how many write."""

TablePatterns = Annotated[
    tuple[Annotated[str, Field(pattern=r"^[A-Za-z0-9_.*?!\[\]-]{1,200}$")], ...], Field(max_length=PATTERNS_MAX)
]
"""Names of tables, in which `*` is anything, `?` one character, and `[ab]` one of these."""

ISSUERS_MAX = 32
RULES_MAX = 100
"""How many issuers the configuration has, and how many rules each of them."""

CLAIMS_MAX = 8
CLAIM_PATTERNS_MAX = 100
"""How many claims a rule asks for, and how many patterns each of them may match."""

AUDIENCES_MAX = 16

Algorithm: TypeAlias = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
"""What a token may be signed with: private keys only. A secret that both sides know would let either make tokens."""

ALGORITHMS: tuple[Algorithm, ...] = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
)


Member = TypeVar("Member")


def _listed(given: object) -> object:
    return (given,) if isinstance(given, str) else given


def checked_url(url: str) -> str:
    """Return a URL that keys may be fetched from: by https, or by http from this machine. Raise ValueError else."""
    if not _may_be_fetched(url):
        raise PydanticCustomError("url", "is an https URL without user and fragment; http is for loopback only")
    return url


def is_loopback(url: str) -> bool:
    """Return whether a URL is of this machine."""
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
    if not whole or "@" in parts.netloc or not _PLAIN.fullmatch(url):
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(url))


_PLAIN = re.compile(r"[\x21\x22\x24-\x7e]+")
"""Neither spaces nor a fragment."""


def _checked_path(path: str) -> str:
    if not re.fullmatch(r"[^./]+(\.[^./]+){0,7}|(/([^/~]|~[01])*){1,8}", path):
        raise PydanticCustomError("path", "is names joined by dots, or a JSON pointer such as /kubernetes.io/namespace")
    return path


ClaimPath = Annotated[str, Field(max_length=200), AfterValidator(_checked_path)]
"""Where a claim is: names joined by dots or, for names with dots or slashes in them, a JSON pointer (RFC 6901)."""


def _some(given: tuple[Member, ...]) -> tuple[Member, ...]:
    if not given:
        raise PydanticCustomError("empty", "has at least one")
    return given


ClaimPatterns = Annotated[
    tuple[Annotated[str, Field(min_length=1, max_length=1000)], ...],
    BeforeValidator(_listed),
    Field(max_length=CLAIM_PATTERNS_MAX),
    AfterValidator(_some),
]

Audiences = Annotated[
    tuple[Annotated[str, Field(min_length=1, max_length=500)], ...],
    BeforeValidator(_listed),
    Field(max_length=AUDIENCES_MAX),
    AfterValidator(_some),
]


class RuleSettings(BaseModel, frozen=True, extra="forbid"):
    """What a token gives a right to whose claims all match: each of them one of its patterns."""

    claims: Annotated[dict[ClaimPath, ClaimPatterns], Field(min_length=1, max_length=CLAIMS_MAX)]
    read: TablePatterns = ()
    write: TablePatterns = ()
    admin: bool = False


class IssuerSettings(BaseModel, frozen=True, extra="forbid"):
    """Whose tokens are taken, for which audience, and by which keys they are verified.

    `jwks_url` is where the keys are; without it the issuer's own document says that (OpenID discovery). `ca_file` and
    `token_file` are for fetching them: whom to trust, and what to be known by; both are read every time.
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
    def _bounded(self) -> "IssuerSettings":
        counts = {
            "claims": sum(len(patterns) for rule in self.rules for patterns in rule.claims.values()),
            "read": sum(len(rule.read) for rule in self.rules),
            "write": sum(len(rule.write) for rule in self.rules),
        }
        for member, count in counts.items():
            if count > PATTERNS_MAX:
                raise ValueError(f"rules have at most {PATTERNS_MAX} patterns in {member}, all together")
        return self

    @model_validator(mode="after")
    def _can_be_asked(self) -> "IssuerSettings":
        if self.jwks_url is None:
            if self.token_file is not None:
                raise ValueError("token_file needs jwks_url: it is not sent to where a document points")
            if "?" in self.issuer or not _may_be_fetched(self.issuer):
                raise ValueError("issuer is an https URL without query, or else jwks_url says where the keys are")
        return self


Issuers = Annotated[tuple[IssuerSettings, ...], Field(max_length=ISSUERS_MAX)]


TOKENS_MAX = 10_000
"""How many tokens the configuration has."""


def _checked_digest(digest: SecretStr) -> SecretStr:
    if not re.fullmatch("[0-9a-fA-F]{64}", text := digest.get_secret_value()):
        raise PydanticCustomError("digest", "is the SHA-256 digest of a token, in 64 hexadecimal digits")
    if text.lower() == _DIGEST_OF_NOTHING:
        raise PydanticCustomError("digest", "is the digest of an empty token")
    return digest


_DIGEST_OF_NOTHING = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


class TokenSettings(BaseModel, frozen=True, extra="forbid"):
    """One bearer token, known by its digest only: whose it is, and which tables it may read and write.

    `admin` is about the service itself, and gives no right on a table.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.@:/-]{0,127}$")
    sha256: Annotated[SecretStr, AfterValidator(_checked_digest)]
    read: TablePatterns = ()
    write: TablePatterns = ()
    admin: bool = False


Tokens = Annotated[tuple[TokenSettings, ...], Field(max_length=TOKENS_MAX)]


class AuthSettings(BaseModel, frozen=True, extra="forbid"):
    """Who may ask. `tokens` are those of the file too, once it is read; `metrics` says who may see /metrics."""

    tokens: Tokens = ()
    tokens_file: str | None = None
    issuers: Issuers = ()
    metrics: Literal["open", "admin"] = "open"
