"""Transport errors and problem documents of httpx responses as exceptions of this package."""

from collections.abc import Mapping
from typing import Any

import httpx

from tableside_client.errors import TLS_REFUSED, UNREACHABLE, TablesideError, error
from tableside_client.tls import Tls, disconnect_hint, rejection_reason

_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)


def unreachable(
    table: str | None, cause: httpx.TransportError, tls: Tls | None, *, is_read: bool = False
) -> TablesideError:
    """Return the exception for a request without a response. `is_read` means that it changes nothing."""
    rejection = None if tls is None else rejection_reason(cause, tls)
    if rejection is not None:
        return error(table, TLS_REFUSED, 0, rejection)
    disconnected = isinstance(cause, httpx.RemoteProtocolError | httpx.ReadError)
    hint = f" ({disconnect_hint(tls)})" if tls is not None and disconnected else ""
    return error(
        table,
        UNREACHABLE,
        0,
        f"{_origin(cause.request.url)}: {type(cause).__name__}: {cause}{hint}",
        retriable=not isinstance(cause, httpx.UnsupportedProtocol),
        applied="no" if is_read or isinstance(cause, _NOT_SENT) else "unknown",
    )


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
