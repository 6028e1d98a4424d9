"""The options of an httpx client: address, authentication, TLS, timeouts and the connection pool."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import httpx

from tableside_client.address import service_url
from tableside_client.credential import Credential, RefreshingToken
from tableside_client.tls import ReloadingContext, Tls

_CONNECT_TIMEOUT_MAX_S = 5.0
_IDLE_MAX_S = 4.0  # shorter than a server's idle timeout, so that the client does not reuse a connection just closed


@dataclass(frozen=True, slots=True)
class Address:
    """The service's URL and how to connect to it. `tls` is None for an `http://` address."""

    url: str
    credential: Credential
    tls: Tls | None

    @classmethod
    def resolve(cls, url: str, credential: Credential, tls: Tls) -> "Address":
        """Fill in the defaults of the environment. Raises `ValueError` for an invalid or contradictory address."""
        url = service_url(url)
        tls.require_https(url)
        return cls(url, credential, tls.with_environment() if url.startswith("https://") else None)

    def http_options(self, timeout_s: float, connections_max: int) -> dict[str, Any]:
        """Return the arguments of `httpx.Client` and `httpx.AsyncClient`.

        Raises:
            CredentialError: The token cannot be read.
            TlsFileError: A TLS file cannot be read or used.
        """
        return {
            "base_url": self.url,
            "verify": True if self.tls is None else ReloadingContext(self.tls, httpx.create_ssl_context),
            "auth": BearerAuth(self.credential),
            "timeout": attempt_timeout(timeout_s),
            "limits": httpx.Limits(
                max_connections=connections_max,
                max_keepalive_connections=connections_max,
                keepalive_expiry=_IDLE_MAX_S,
            ),
        }


def attempt_timeout(seconds: float) -> httpx.Timeout:
    """Return the timeouts of one attempt. Waiting for a free connection of the pool does not count."""
    return httpx.Timeout(seconds, connect=min(seconds, _CONNECT_TIMEOUT_MAX_S), pool=None)


class BearerAuth(httpx.Auth):
    """Adds the bearer token to each request. After a 401, reloads the token and retries once if it changed."""

    def __init__(self, credential: Credential) -> None:
        self._token = RefreshingToken(credential)

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Send the request with the current token, and again after a 401 if there is a new token."""
        sent = self._authorize(request)
        response = yield request
        if response.status_code == 401 and self._token.reload_differs(sent):
            self._authorize(request)
            yield request

    def _authorize(self, request: httpx.Request) -> str | None:
        token = self._token.current()
        if token is not None:
            request.headers["Authorization"] = f"Bearer {token}"
        return token
