"""The HTTP clients of an address: pools of connections, or httpx for an address behind a proxy."""

import asyncio
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

import httpx

from tableside_client.address import Address
from tableside_client.connections import AsyncConnection, BlockingConnection
from tableside_client.http1 import IDLE_MAX_S, UNCOMPRESSED, Reply, Request
from tableside_client.tls import ReloadingContext, Tls


def open_client(address: Address, connections_max: int) -> "Connections | Proxied":
    """Open a client for threads. Raises `TlsFileError` if a TLS file cannot be read or used."""
    if address.proxy is not None:
        return Proxied(address.url, httpx.Client(**_options(address.proxy.url, _context(address.tls), connections_max)))
    connect = partial(BlockingConnection, httpx.URL(address.url), _context(address.tls))
    return Connections(connections_max, IDLE_MAX_S, connect)


def open_async_client(address: Address, connections_max: int) -> "AsyncConnections | AsyncProxied":
    """Open a client for asyncio, with the exceptions of `open_client`."""
    if address.proxy is not None:
        options = _options(address.proxy.url, _context(address.tls), connections_max)
        return AsyncProxied(address.url, httpx.AsyncClient(**options))
    connect = partial(AsyncConnection, httpx.URL(address.url), _context(address.tls))
    return AsyncConnections(connections_max, IDLE_MAX_S, connect)


def _context(tls: Tls | None) -> ssl.SSLContext | None:
    return None if tls is None else ReloadingContext(tls, httpx.create_ssl_context)


Connection = TypeVar("Connection")


class _Pool(Generic[Connection]):
    """Creates connections, and keeps the ones that no request uses, for at most `idle_max_s`. Thread-safe."""

    def __init__(self, idle_max_s: float, connect: Callable[[], Connection]) -> None:
        self._idle_max_s, self._connect = idle_max_s, connect
        self._free: deque[tuple[float, Connection]] = deque()
        self._opened: set[Connection] = set()
        self._is_closed = False

    def _take(self) -> Connection:
        if self._is_closed:
            raise RuntimeError("the client has been closed")
        try:
            return self._free.pop()[1]
        except IndexError:
            connection = self._connect()
            self._opened.add(connection)
            return connection

    def _put(self, connection: Connection) -> None:
        self._free.append((time.monotonic(), connection))

    def _expired(self) -> Connection | None:
        """Remove and return the connection that has been free for longest, None if it has not expired."""
        try:
            since_s, connection = self._free.popleft()
        except IndexError:
            return None
        if time.monotonic() - since_s <= self._idle_max_s:
            self._free.appendleft((since_s, connection))
            return None
        self._opened.discard(connection)
        return connection


class Connections(_Pool[BlockingConnection]):
    """At most `connections_max` connections for threads. `connect` creates one."""

    def __init__(self, connections_max: int, idle_max_s: float, connect: Callable[[], BlockingConnection]) -> None:
        super().__init__(idle_max_s, connect)
        self._allowed = threading.Semaphore(connections_max)

    def send(self, request: Request) -> Reply:
        """Send a request once over a free connection. Raises `httpx.TransportError` if there is no reply."""
        with self._allowed:
            while (expired := self._expired()) is not None:
                expired.close()
            connection = self._take()
            try:
                return connection.send(request)
            finally:
                self._put(connection)

    def close(self) -> None:
        """Close all connections. Requests in flight fail."""
        self._is_closed = True
        for connection in list(self._opened):
            connection.close()


class AsyncConnections(_Pool[AsyncConnection]):
    """At most `connections_max` connections for the tasks of one event loop. `connect` creates one."""

    def __init__(self, connections_max: int, idle_max_s: float, connect: Callable[[], AsyncConnection]) -> None:
        super().__init__(idle_max_s, connect)
        self._allowed = asyncio.Semaphore(connections_max)

    async def send(self, request: Request) -> Reply:
        """Send a request once over a free connection. Raises `httpx.TransportError` if there is no reply."""
        async with self._allowed:
            while (expired := self._expired()) is not None:
                await expired.close()
            connection = self._take()
            try:
                return await connection.send(request)
            finally:
                self._put(connection)

    async def close(self) -> None:
        """Close all connections. Requests in flight fail."""
        self._is_closed = True
        for connection in list(self._opened):
            await connection.close()


class Proxied:
    """Sends the requests of threads through a proxy."""

    def __init__(self, url: str, client: httpx.Client) -> None:
        self._url, self._client = url, client

    def send(self, request: Request) -> Reply:
        """Send a request once. Raises `httpx.TransportError`."""
        return _reply(self._client.request(**_arguments(self._url, request)))

    def close(self) -> None:
        """Close all connections."""
        self._client.close()


class AsyncProxied:
    """Sends the requests of tasks through a proxy."""

    def __init__(self, url: str, client: httpx.AsyncClient) -> None:
        self._url, self._client = url, client

    async def send(self, request: Request) -> Reply:
        """Send a request once. Raises `httpx.TransportError`."""
        return _reply(await self._client.request(**_arguments(self._url, request)))

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()


def _options(proxy: str, context: ssl.SSLContext | None, connections_max: int) -> dict[str, Any]:
    limits = httpx.Limits(max_connections=connections_max, keepalive_expiry=IDLE_MAX_S)
    # Without TLS, an unused context: httpx's own would load all authorities.
    verify = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if context is None else context
    return {"proxy": proxy, "headers": UNCOMPRESSED, "verify": verify, "limits": limits, "trust_env": False}


def _arguments(url: str, request: Request) -> dict[str, Any]:
    timeout = httpx.Timeout(request.timeout_s, connect=request.connect_timeout_s, pool=None)
    arguments = {name: getattr(request, name) for name in ("method", "headers", "content")}
    return {"url": url + request.target, "timeout": timeout, **arguments}


def _reply(response: httpx.Response) -> Reply:
    headers = {name.lower(): text for name, text in response.headers.items()}
    return Reply(response.status_code, headers, response.content)
