"""Authentication by bearer token: a configured static token, or a token signed by an issuer.

The configuration contains only SHA-256 digests of static tokens. Only the path and the headers of a request are used.
"""

import re
import time
from base64 import b64decode
from collections.abc import Awaitable
from hashlib import sha256

from prometheus_client import CollectorRegistry
from starlette.types import Scope

from ..core import TableError
from ..telemetry import Counter
from .key_source import FetchKeys, IssuerMetrics, KeysMissing
from .keys import fetch_keys
from .permissions import ANONYMOUS, UNRESTRICTED, Caller
from .settings import AuthSettings, TokenSettings
from .signed_tokens import Issuers, TokenRejected

_METRICS = "/metrics"
_PUBLIC = frozenset({"/", "/favicon.ico", "/livez", "/readyz", "/openapi.json", "/docs"})
_PUBLIC_UNDER = "/static-offline-docs/"

_CONSOLE = "/console"

TOKENS_KEPT_MAX = 10_000
"""The number of signed tokens whose callers are kept until they expire. Above it the oldest is dropped."""

_BASIC = re.compile(rb"basic +([A-Za-z0-9+/=]+)", re.IGNORECASE)
_BEARER = re.compile(rb"bearer +([\x21-\x7e]+)", re.IGNORECASE)


class Unauthenticated(TableError):
    """The request has no valid token, for a `reason` that the response omits.

    `challenge` is the value of the header `WWW-Authenticate`.
    """

    code = "unauthenticated"
    challenge = "Bearer"

    def __init__(self, reason: str) -> None:
        super().__init__("a valid bearer token is required: Authorization: Bearer <token>")
        self.reason = reason


class UnauthenticatedConsole(Unauthenticated):
    """The same for the console: the browser then prompts for the token, as a password."""

    challenge = 'Basic realm="Tableside: the token is the password", charset="UTF-8"'


class Auth:
    """Authenticates callers. The settings can be replaced at run time. Without settings, callers are unrestricted."""

    def __init__(
        self, settings: AuthSettings | None, registry: CollectorRegistry, fetch: FetchKeys = fetch_keys
    ) -> None:
        self._refusals = Counter(
            "tableside_unauthenticated",
            "Requests rejected because their token was missing or invalid, by reason. Responses omit the reason.",
            ("reason",),
            registry=registry,
        )
        self._verified: dict[bytes, Caller] = {}
        self._issuers = Issuers(self._verified.clear, IssuerMetrics(registry), fetch)
        self.change(settings)

    def change(self, settings: AuthSettings | None) -> None:
        """Replace the settings. Requests that were already admitted keep their permissions."""
        self._public = _PUBLIC if settings is None or settings.metrics == "admin" else _PUBLIC | {_METRICS}
        self._callers = None if settings is None else dict(map(_static_caller, settings.tokens))
        self.required = settings is not None
        self._issuers.change(() if settings is None else settings.issuers)

    async def run(self) -> None:
        """Refresh the keys of issuers until cancelled."""
        await self._issuers.run()

    def caller_of(self, token: bytes) -> Caller:
        """Return the token's caller, or `UNRESTRICTED` if no tokens are configured.

        Raise TokenRejected if the token is not valid, KeysMissing if it may be valid but its issuer's keys must be
        fetched first.
        """
        if self._callers is None:
            return UNRESTRICTED
        # The time of a lookup reveals at most something about a digest, which does not help to guess a token: a client
        # can vary only the token, and the digests of similar tokens are unrelated.
        digest = sha256(token).digest()
        caller = self._callers.get(digest) or self._verified.get(digest)
        if caller is not None and time.time() < caller.until:
            return caller
        if (caller := self._issuers.verified(token)) is None:
            raise TokenRejected("unknown" if token else "missing")
        self._verified.pop(digest, None)
        if len(self._verified) >= TOKENS_KEPT_MAX:
            del self._verified[next(iter(self._verified))]
        self._verified[digest] = caller
        return caller

    async def caller_after_fetch(self, token: bytes, missing: KeysMissing) -> Caller:
        """Return the token's caller after the missing keys were fetched. Raise TokenRejected, or TableError."""
        await missing.source.refreshed()
        try:
            return self.caller_of(token)
        except KeysMissing as still:
            if still.source is not missing.source:  # Issuers were replaced during the fetch.
                raise still.source.unavailable() from None
            raise TokenRejected("key") from None

    def admit(self, scope: Scope) -> Caller | Awaitable[Caller]:
        """Return the caller of a request. Raise Unauthenticated if it needs a token and has no valid one.

        It reads no body and rarely waits, so call it before the request counts towards any limit: requests without a
        token then cannot displace others. The result is awaitable if the token names a key that its issuer may have
        published since its keys were fetched.
        """
        if self._callers is None:
            return UNRESTRICTED
        path = scope["path"]
        if path in self._public or path.startswith(_PUBLIC_UNDER):
            return ANONYMOUS
        # A missing or malformed token is looked up as the empty token, which is never valid.
        token = _password(scope) or _token(scope) if _in_console(path) else _token(scope)
        try:
            return self.caller_of(token)
        except TokenRejected as rejected:
            raise self._unauthenticated(scope, rejected) from None
        except KeysMissing as missing:
            return self._admit_later(scope, token, missing)

    async def _admit_later(self, scope: Scope, token: bytes, missing: KeysMissing) -> Caller:
        try:
            return await self.caller_after_fetch(token, missing)
        except TokenRejected as rejected:
            raise self._unauthenticated(scope, rejected) from None
        except TableError:
            self._refusals.labels("unavailable").inc()
            raise

    def _unauthenticated(self, scope: Scope, rejected: TokenRejected) -> Unauthenticated:
        """Count a rejected token, and return the error for its request."""
        self._refusals.labels(rejected.reason).inc()
        return (UnauthenticatedConsole if _in_console(scope["path"]) else Unauthenticated)(rejected.reason)


def _static_caller(token: TokenSettings) -> tuple[bytes, Caller]:
    caller = Caller(token.name, token.read, token.write, admin=token.admin)
    return bytes.fromhex(token.sha256.get_secret_value()), caller


def _in_console(path: str) -> bool:
    return path == _CONSOLE or path.startswith(f"{_CONSOLE}/")


def _token(scope: Scope) -> bytes:
    """Return the request's bearer token, or an empty text if it is missing, repeated or malformed."""
    match = _BEARER.fullmatch(_authorization(scope))
    return match[1] if match else b""


def _password(scope: Scope) -> bytes:
    """Return the token that a browser sends as a password, with any user name, or an empty text."""
    if (match := _BASIC.fullmatch(_authorization(scope))) is None:
        return b""
    try:
        return b64decode(match[1], validate=True).partition(b":")[2]
    except ValueError:
        return b""


def _authorization(scope: Scope) -> bytes:
    given: list[bytes] = [value for name, value in scope["headers"] if name == b"authorization"]
    return given[0] if len(given) == 1 else b""
