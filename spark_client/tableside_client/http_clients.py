"""The httpx clients of an address: authentication, TLS, timeouts, and their pools of connections."""

import asyncio
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any, Generic, TypeVar

import httpx

from tableside_client.address import EnvironmentProxy, environment_proxy, service_url
from tableside_client.credential import Credential, RefreshingToken
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
        auth, timeout = BearerAuth(self.credential), attempt_timeout(timeout_s)
        return httpx.Client(auth=auth, timeout=timeout, transport=transport)

    def async_client(self, timeout_s: float, connections_max: int) -> httpx.AsyncClient:
        """Open a client for asyncio, with the exceptions of `client`."""
        connect = partial(httpx.AsyncHTTPTransport, **self._connection())
        transport = AsyncConnections(connections_max, _IDLE_MAX_S, connect)
        auth, timeout = BearerAuth(self.credential), attempt_timeout(timeout_s)
        return httpx.AsyncClient(auth=auth, timeout=timeout, transport=transport)

    def _connection(self) -> dict[str, Any]:
        """Return the options of the transport of one connection."""
        # Without TLS, an unused context: httpx's own would load all authorities for each connection.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if self.tls is not None:
            context = ReloadingContext(self.tls, httpx.create_ssl_context)
        limits = httpx.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=_IDLE_MAX_S)
        return {"verify": context, "limits": limits, "proxy": None if self.proxy is None else self.proxy.url}


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


Connection = TypeVar("Connection")


class FreeConnections(Generic[Connection]):
    """Creates connections, and keeps the ones that no request uses. Thread-safe.

    Args:
        connect: Creates a connection.
        idle_max_s: The time after which an unused connection expires, in seconds.
        clock: The current time, in seconds.
    """

    def __init__(
        self, connect: Callable[[], Connection], idle_max_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._connect = connect
        self._idle_max_s = idle_max_s
        self._clock = clock
        self._free: deque[tuple[float, Connection]] = deque()
        self.opened: set[Connection] = set()

    def take(self) -> Connection:
        """Return the connection that became free last, or a new one."""
        try:
            return self._free.pop()[1]
        except IndexError:
            connection = self._connect()
            self.opened.add(connection)
            return connection

    def put(self, connection: Connection) -> None:
        """Return a connection that `take` returned."""
        self._free.append((self._clock(), connection))

    def expired(self) -> Connection | None:
        """Remove and return the connection that has been free for longest, None if it has not expired."""
        try:
            since_s, connection = self._free.popleft()
        except IndexError:
            return None
        if self._clock() - since_s <= self._idle_max_s:
            self._free.appendleft((since_s, connection))
            return None
        self.opened.discard(connection)
        return connection


class Connections(httpx.BaseTransport):
    """At most `connections_max` connections for threads. `connect` creates the transport of one."""

    def __init__(self, connections_max: int, idle_max_s: float, connect: Callable[[], httpx.BaseTransport]) -> None:
        self._allowed = threading.Semaphore(connections_max)
        self._connections = FreeConnections(connect, idle_max_s)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request over a free connection, and read the whole response."""
        with self._allowed:
            connection = self._connections.take()
            try:
                response = connection.handle_request(request)
                response.read()
            finally:
                self._connections.put(connection)
        if (expired := self._connections.expired()) is not None:
            expired.close()
        return response

    def close(self) -> None:
        """Close all connections. Requests in flight fail."""
        for connection in list(self._connections.opened):
            connection.close()


class AsyncConnections(httpx.AsyncBaseTransport):
    """At most `connections_max` connections for the tasks of one event loop. `connect` creates the transport of one."""

    def __init__(
        self, connections_max: int, idle_max_s: float, connect: Callable[[], httpx.AsyncBaseTransport]
    ) -> None:
        self._allowed = asyncio.Semaphore(connections_max)
        self._connections = FreeConnections(connect, idle_max_s)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request over a free connection, and read the whole response."""
        async with self._allowed:
            connection = self._connections.take()
            try:
                response = await connection.handle_async_request(request)
                await response.aread()
            finally:
                self._connections.put(connection)
        if (expired := self._connections.expired()) is not None:
            await expired.aclose()
        return response

    async def aclose(self) -> None:
        """Close all connections. Requests in flight fail."""
        for connection in list(self._connections.opened):
            await connection.aclose()
