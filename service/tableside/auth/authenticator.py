"""Authentication by bearer token: a configured static token, or a token signed by an issuer.

The configuration contains only SHA-256 digests of static tokens. Only the path and the headers of a request are used.
"""

import asyncio
import re
import time
from base64 import b64decode
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from hashlib import sha256

from prometheus_client import CollectorRegistry
from starlette.types import Scope

from ..core import TableError
from ..telemetry import Counter
from .key_source import IssuerMetrics, KeysMissing, KeySource
from .keys import KeysLocation
from .permissions import ANONYMOUS, UNRESTRICTED, Caller
from .settings import AuthSettings, IssuerSettings
from .signed_tokens import TokenRejected, Verifier, verify_token

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

    def __init__(self, reason: str, *, console: bool) -> None:
        super().__init__("a valid bearer token is required: Authorization: Bearer <token>")
        self.reason = reason
        self.challenge = "Bearer"
        if console:  # A browser then prompts for the token.
            self.challenge = 'Basic realm="Tableside: the token is the password", charset="UTF-8"'


class Auth:
    """Authenticates callers. The settings can be replaced at run time. Without settings, callers are unrestricted."""

    def __init__(self, settings: AuthSettings | None, registry: CollectorRegistry) -> None:
        self._refusals = Counter(
            "tableside_unauthenticated",
            "Requests rejected because their token was missing or invalid, by reason. Responses omit the reason.",
            ("reason",),
            registry=registry,
        )
        self._verified: dict[bytes, Caller] = {}
        self._metrics = IssuerMetrics(registry)
        self._issuers: Sequence[IssuerSettings] = ()
        self._sources: dict[KeysLocation, KeySource] = {}
        self._verifiers: dict[str, list[Verifier]] = {}
        self._issuers_changed = asyncio.Event()
        self.change(settings)

    def change(self, settings: AuthSettings | None) -> None:
        """Replace the settings. Admitted requests keep their permissions, and issuers that stay keep their keys."""
        self._public = _PUBLIC if settings is None or settings.metrics == "admin" else _PUBLIC | {"/metrics"}
        callers = {
            bytes.fromhex(each.sha256.get_secret_value()): Caller(each.name, each.read, each.write, admin=each.admin)
            for each in (() if settings is None else settings.tokens)
        }
        self._callers = None if settings is None else callers
        self.required = settings is not None
        issuers = () if settings is None else settings.issuers
        if issuers == self._issuers:
            return
        previous = self._sources
        self._issuers, self._sources, self._verifiers = issuers, {}, {}
        for each in issuers:
            location = KeysLocation(each.issuer, each.jwks_url, each.ca_file, each.token_file)
            source = self._sources.get(location) or previous.get(location)
            if source is None:
                source = KeySource(location, each.refresh_s, self._verified.clear, self._metrics)
            source.refresh_s = each.refresh_s
            self._sources[location] = source
            self._verifiers.setdefault(each.issuer, []).append(Verifier(each, source))
        self._verified.clear()
        self._issuers_changed.set()

    async def run(self) -> None:
        """Refresh the keys of issuers until cancelled."""
        tasks: dict[KeySource, asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as group:
            while True:
                wanted = set(self._sources.values())
                for source in tasks.keys() - wanted:
                    tasks.pop(source).cancel()
                    source.close()
                tasks |= {source: group.create_task(source.run()) for source in wanted - tasks.keys()}
                await self._issuers_changed.wait()
                self._issuers_changed.clear()

    def caller_of(self, token: bytes) -> Caller:
        """Return the token's caller, or `UNRESTRICTED` without settings. Raise TokenRejected, or KeysMissing."""
        if self._callers is None:
            return UNRESTRICTED
        # The time of a lookup reveals at most something about a digest, which does not help to guess a token: a client
        # can vary only the token, and the digests of similar tokens are unrelated.
        digest = sha256(token).digest()
        caller = self._callers.get(digest) or self._verified.get(digest)
        if caller is not None and time.time() < caller.until:
            return caller
        if (caller := verify_token(token, self._verifiers)) is None:
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
        token = _token(scope)
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
        return Unauthenticated(rejected.reason, console=_in_console(scope["path"]))


def _in_console(path: str) -> bool:
    return path == _CONSOLE or path.startswith(f"{_CONSOLE}/")


def _token(scope: Scope) -> bytes:
    """Return the request's bearer token. A browser sends that for the console as a password, with any user name.

    A missing, repeated or malformed token is the empty token, which is never valid.
    """
    given: list[bytes] = [value for name, value in scope["headers"] if name == b"authorization"]
    if len(given) != 1:
        return b""
    if (bearer := _BEARER.fullmatch(given[0])) is not None:
        return bearer[1]
    if _in_console(scope["path"]) and (basic := _BASIC.fullmatch(given[0])) is not None:
        with suppress(ValueError):
            return b64decode(basic[1], validate=True).partition(b":")[2]
    return b""
