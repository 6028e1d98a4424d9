"""The httpx clients of an address: authentication, TLS, timeouts and connections."""

import ssl
from collections.abc import Generator
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any

import httpx

from tableside_client.address import service_url
from tableside_client.connections import AsyncConnections, Connections
from tableside_client.credential import Credential, RefreshingToken
from tableside_client.proxies import EnvironmentProxy, environment_proxy
from tableside_client.tls import ReloadingContext, Tls

_CONNECT_TIMEOUT_MAX_S = 5.0
_IDLE_MAX_S = 4.0  # shorter than a server's idle timeout, so that the client does not reuse a connection just closed


@dataclass(frozen=True, slots=True)
class Address:
    """The service's URL and how to connect to it. `tls` is None for an `http://` address, `proxy` if none is used."""

    url: str
    credential: Credential
    tls: Tls | None
    proxy: EnvironmentProxy | None

    @classmethod
    def resolve(cls, url: str, credential: Credential, tls: Tls) -> "Address":
        """Fill in the defaults of the environment.

        Raises `ValueError` for an invalid or contradictory address, or for a proxy that cannot be used.
        """
        url = service_url(url)
        tls.require_https(url)
        proxy = environment_proxy(url)
        if proxy is not None:
            _require_usable(proxy)
        return cls(url, credential, tls.with_environment() if url.startswith("https://") else None, proxy)

    def client(self, timeout_s: float, connections_max: int) -> httpx.Client:
        """Open a blocking client.

        Raises:
            CredentialError: The token cannot be read.
            TlsFileError: A TLS file cannot be read or used.
        """
        connect = partial(httpx.HTTPTransport, **self._connection())
        transport = Connections(connections_max, _IDLE_MAX_S, connect)
        return httpx.Client(**self._options(timeout_s), transport=transport)

    def async_client(self, timeout_s: float, connections_max: int) -> httpx.AsyncClient:
        """Open a client for asyncio, with the exceptions of `client`."""
        connect = partial(httpx.AsyncHTTPTransport, **self._connection())
        transport = AsyncConnections(connections_max, _IDLE_MAX_S, connect)
        return httpx.AsyncClient(**self._options(timeout_s), transport=transport)

    def _options(self, timeout_s: float) -> dict[str, Any]:
        return {"auth": BearerAuth(self.credential), "timeout": attempt_timeout(timeout_s)}

    def _connection(self) -> dict[str, Any]:
        """Return the options of the transport of one connection."""
        context = _unused_context() if self.tls is None else ReloadingContext(self.tls, httpx.create_ssl_context)
        limits = httpx.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=_IDLE_MAX_S)
        return {"verify": context, "limits": limits, "proxy": None if self.proxy is None else self.proxy.url}


def _unused_context() -> ssl.SSLContext:
    """Return a context for connections without TLS. httpx's own would load all authorities for each connection."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _require_usable(proxy: EnvironmentProxy) -> None:
    """Raise `ValueError` if the proxy is not supported, or if the package for it is not installed."""
    try:
        scheme = httpx.Proxy(proxy.url).url.scheme
    except (ValueError, httpx.InvalidURL):
        raise ValueError(f"{proxy.variable} must be the URL of an http, https or socks5 proxy") from None
    if scheme.startswith("socks") and find_spec("socksio") is None:
        raise ValueError(f"{proxy} needs the package socksio: pip install socksio")


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
