"""Who asks, by bearer token: one that is configured, or one that an issuer has signed.

Configured tokens are known by their SHA-256 digests only. Knows nothing of routes, and of requests only the path and
the headers.
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
from .issuers import Issuers
from .jwks_client import fetched
from .key_source import Fetch, KeysMissing
from .metrics import IssuerMetrics
from .permissions import ANONYMOUS, UNRESTRICTED, Caller
from .refusals import Refused
from .settings import AuthSettings, TokenSettings
from .token_cache import Remembered

_METRICS = "/metrics"
_PUBLIC = frozenset({"/livez", "/readyz", "/openapi.json", "/docs", "/docs/oauth2-redirect"})
_PUBLIC_UNDER = "/static-offline-docs/"

_CONSOLE = "/console"
_BASIC = re.compile(rb"basic +([A-Za-z0-9+/=]+)", re.IGNORECASE)
_BEARER = re.compile(rb"bearer +([\x21-\x7e]+)", re.IGNORECASE)


class Unauthenticated(TableError):
    """No token was given that is known here; `challenge` says how one is given."""

    code = "unauthenticated"
    challenge = "Bearer"


class UnauthenticatedOnPages(Unauthenticated):
    """The same where people come with a browser, which then asks them for the token, as a password."""

    challenge = 'Basic realm="Tableside: the token is the password", charset="UTF-8"'


class Auth:
    """The callers that are known; exchangeable while requests are served. Without settings anybody may do anything."""

    def __init__(self, settings: AuthSettings | None, registry: CollectorRegistry, fetch: Fetch = fetched) -> None:
        self._refusals = Counter(
            "tableside_unauthenticated",
            "Tokens that were not taken, and requests without one, by the reason, which the caller is not told.",
            ("reason",),
            registry=registry,
        )
        self._verified: Remembered[Caller] = Remembered(time.time)
        self._issuers = Issuers(self._verified.forget, IssuerMetrics(registry), fetch)
        self.change(settings)

    def change(self, settings: AuthSettings | None) -> None:
        """Know these callers from now on. Requests that were let in keep the rights that they came with."""
        self._public = _PUBLIC if settings is None or settings.metrics == "admin" else _PUBLIC | {_METRICS}
        self._callers = None if settings is None else dict(map(_known, settings.tokens))
        self._issuers.change(() if settings is None else settings.issuers)

    async def run(self) -> None:
        """Keep the keys of issuers fresh until cancelled."""
        await self._issuers.run()

    def known(self, token: bytes) -> Caller | None:
        """Return whose token it is, None if nobody's; where no tokens are configured it is anybody's.

        Raise KeysMissing where that can be said only with newer keys of an issuer.
        """
        if self._callers is None:
            return UNRESTRICTED
        # By its time a look-up tells at most something about a digest, and no token can be made from that: what a
        # caller can vary is the token, and the next one's digest has nothing in common with this one's.
        digest = sha256(token).digest()
        if (caller := self._callers.get(digest) or self._verified.get(digest)) is not None:
            return caller
        return self._found(token, digest)

    def admit(self, scope: Scope) -> Caller | Awaitable[Caller]:
        """Return the caller of a request. Raise Unauthenticated if a token is required and none or an unknown one came.

        It reads no body and rarely waits, so call it before the request counts towards any limit: requests without a
        token then cannot displace others. The result is awaitable if the token names a key that its issuer may have
        published since its keys were fetched.
        """
        if self._callers is None:
            return UNRESTRICTED
        path = scope["path"]
        if path in self._public or path.startswith(_PUBLIC_UNDER):
            return ANONYMOUS
        # What is missing or malformed is looked up like any other token, as the empty one, which nobody has.
        token = _password(scope) or _token(scope) if _on_pages(path) else _token(scope)
        try:
            return _checked(scope, self.known(token))
        except KeysMissing as missing:
            return self._admit_later(scope, token, missing)

    async def _admit_later(self, scope: Scope, token: bytes, missing: KeysMissing) -> Caller:
        try:
            await missing.source.renewed()
            caller = self.known(token)
        except KeysMissing as still:
            if still.source is not missing.source:  # Issuers were exchanged meanwhile: nobody has looked there yet.
                raise still.source.unavailable() from None
            self._refusals.labels("key").inc()
            caller = None
        except TableError:
            self._refusals.labels("unavailable").inc()
            raise
        return _checked(scope, caller)

    def _found(self, token: bytes, digest: bytes) -> Caller | None:
        """Return whose token it is by an issuer's signature, and remember that; count why it is nobody's."""
        try:
            verified = self._issuers.verified(token)
        except Refused as refused:
            self._refusals.labels(refused.reason).inc()
            return None
        if verified is None:
            self._refusals.labels("unknown" if token else "missing").inc()
            return None
        caller = Caller(verified.name, verified.read, verified.write, admin=verified.admin)
        self._verified.keep(digest, caller, verified.until)
        return caller


def _checked(scope: Scope, caller: Caller | None) -> Caller:
    if caller is None:
        raise (UnauthenticatedOnPages if _on_pages(scope["path"]) else Unauthenticated)(
            "a bearer token that is known here is needed: Authorization: Bearer <token>"
        )
    return caller


def _known(token: TokenSettings) -> tuple[bytes, Caller]:
    caller = Caller(token.name, token.read, token.write, admin=token.admin)
    return bytes.fromhex(token.sha256.get_secret_value()), caller


def _on_pages(path: str) -> bool:
    return path == _CONSOLE or path.startswith(f"{_CONSOLE}/")


def _token(scope: Scope) -> bytes:
    """Return the token that a request carries; empty if it carries none, or several, or what is none."""
    match = _BEARER.fullmatch(_authorization(scope))
    return match[1] if match else b""


def _password(scope: Scope) -> bytes:
    """Return the token that a browser sends as the password of any user; empty if it sends none."""
    if (match := _BASIC.fullmatch(_authorization(scope))) is None:
        return b""
    try:
        return b64decode(match[1], validate=True).partition(b":")[2]
    except ValueError:
        return b""


def _authorization(scope: Scope) -> bytes:
    given: list[bytes] = [value for name, value in scope["headers"] if name == b"authorization"]
    return given[0] if len(given) == 1 else b""
