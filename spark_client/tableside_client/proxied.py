"""Requests through a proxy, which httpx sends."""

import ssl
from typing import Any

import httpx

from tableside_client.http1 import IDLE_MAX_S, Reply, Request


class Proxied:
    """Sends the requests of threads through a proxy."""

    def __init__(self, url: str, proxy: str, context: ssl.SSLContext | None, connections_max: int) -> None:
        self._url = url
        self._client = httpx.Client(**_options(proxy, context, connections_max))

    def send(self, request: Request) -> Reply:
        """Send a request once. Raises `httpx.TransportError`."""
        return _reply(self._client.request(**_arguments(self._url, request)))

    def close(self) -> None:
        """Close all connections."""
        self._client.close()


class AsyncProxied:
    """Sends the requests of tasks through a proxy."""

    def __init__(self, url: str, proxy: str, context: ssl.SSLContext | None, connections_max: int) -> None:
        self._url = url
        self._client = httpx.AsyncClient(**_options(proxy, context, connections_max))

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
    return {"proxy": proxy, "verify": verify, "limits": limits, "trust_env": False}


def _arguments(url: str, request: Request) -> dict[str, Any]:
    timeout = httpx.Timeout(request.timeout_s, connect=request.connect_timeout_s, pool=None)
    arguments = {name: getattr(request, name) for name in ("method", "headers", "content")}
    return {"url": url + request.target, "timeout": timeout, **arguments}


def _reply(response: httpx.Response) -> Reply:
    headers = {name.lower(): text for name, text in response.headers.items()}
    return Reply(response.status_code, headers, response.content)
