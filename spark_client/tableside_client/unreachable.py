"""Transport errors and problem documents of httpx responses as exceptions of this package."""

from collections.abc import Mapping
from typing import Any

import httpx

from tableside_client.errors import PROXY_FAILED, TLS_REFUSED, UNREACHABLE, TablesideError, error, through
from tableside_client.proxies import EnvironmentProxy
from tableside_client.tls import Tls, disconnect_hint, rejection_reason

_NOT_CONNECTED = (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError)
_NOT_SENT = (*_NOT_CONNECTED, httpx.PoolTimeout, httpx.UnsupportedProtocol)


def unreachable(
    table: str | None,
    cause: httpx.TransportError,
    tls: Tls | None,
    proxy: EnvironmentProxy | None = None,
    *,
    is_read: bool = False,
) -> TablesideError:
    """Return the exception for a request without a response. `is_read` means that it changes nothing."""
    rejection = None if tls is None else rejection_reason(cause, tls)
    if rejection is not None:
        return error(table, TLS_REFUSED, 0, rejection + through(proxy))
    disconnected = isinstance(cause, httpx.RemoteProtocolError | httpx.ReadError)
    hint = f" ({disconnect_hint(tls)})" if tls is not None and disconnected else ""
    by_proxy = proxy is not None and isinstance(cause, _NOT_CONNECTED)
    return error(
        table,
        PROXY_FAILED if by_proxy else UNREACHABLE,
        0,
        f"{_origin(cause.request.url)}{through(proxy)}: {type(cause).__name__}: {cause}{hint}",
        retriable=not isinstance(cause, httpx.UnsupportedProtocol) and not _is_refused(cause),
        applied="no" if is_read or isinstance(cause, _NOT_SENT) else "unknown",
    )


def _is_refused(cause: httpx.TransportError) -> bool:
    """Return whether a proxy refuses to connect, for example because it requires a password (407)."""
    return isinstance(cause, httpx.ProxyError) and str(cause).startswith("4")


def _origin(url: httpx.URL) -> str:
    """Return the address of the service without the path, which has the key of a record."""
    return f"{url.scheme}://{url.netloc.decode('ascii')}"


def problem_of(response: httpx.Response) -> Mapping[str, Any] | None:
    """Return the problem document of a response, None if it has none."""
    if "json" not in response.headers.get("content-type", ""):
        return None
    try:
        document = response.json()
    except ValueError:
        return None
    return document if isinstance(document, dict) else None
