"""Send requests over one connection pool: authentication, TLS, retries, and transport errors as `TableError`.

No other module imports httpx except `client`, for the type of a response.
"""

import threading
from collections.abc import Callable, Generator, Mapping
from typing import Any, TypeVar

import httpx

from tableside_client import wire
from tableside_client.credential import Credential, RefreshingToken
from tableside_client.errors import TLS_REFUSED, UNREACHABLE, TableError, from_problem
from tableside_client.retries import Retries, RetryBudget
from tableside_client.tls import ReloadingContext, Tls, disconnect_hint, rejection_reason
from tableside_client.tracing import trace_headers
from tableside_client.waits import Waits

_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)
_CONNECT_TIMEOUT_MAX_S = 5.0
_IDLE_MAX_S = 4.0  # shorter than a server's idle timeout, so that the client does not reuse a connection just closed

Result = TypeVar("Result")


class Transport:
    """A thread-safe connection pool to one service, and the retries of its requests."""

    def __init__(
        self,
        url: str,
        *,
        credential: Credential,
        tls: Tls,
        timeout_s: float,
        connections_max: int,
        retries: Retries,
    ) -> None:
        tls.require_https(url)
        self._tls = tls.with_environment() if url.startswith("https://") else None
        self._retries = retries
        self._waits = Waits()
        self._retried = 0
        self._retried_lock = threading.Lock()
        self._http = httpx.Client(
            base_url=url.rstrip("/"),
            verify=True if self._tls is None else ReloadingContext(self._tls, httpx.create_ssl_context),
            auth=_BearerAuth(credential),
            timeout=httpx.Timeout(timeout_s, connect=min(timeout_s, _CONNECT_TIMEOUT_MAX_S), pool=None),
            limits=httpx.Limits(
                max_connections=connections_max,
                max_keepalive_connections=connections_max,
                keepalive_expiry=_IDLE_MAX_S,
            ),
        )

    def close(self) -> None:
        """Close all connections. Requests in flight fail."""
        self._http.close()

    @property
    def url(self) -> str:
        """The base URL of the service."""
        return str(self._http.base_url)

    @property
    def retried(self) -> int:
        """The number of retries so far."""
        return self._retried

    @property
    def waited_s(self) -> float:
        """The time in which at least one request waited for a retry so far, in seconds."""
        return self._waits.total_s

    def count_retries(self, retries: int) -> None:
        """Add retries that the caller made itself."""
        with self._retried_lock:
            self._retried += retries

    def new_budget(self) -> RetryBudget:
        """Return the retry budget of one call."""
        return RetryBudget(self._retries, self._waits)

    def send(self, method: str, path: str, *, table: str | None = None, **request: Any) -> httpx.Response:
        """Send one request once. Raises `TableError` unless the response's status is 2xx."""
        if "json" in request:
            content = wire.json_bytes(request.pop("json"))
            request["content"] = content
            request["headers"] = {"Content-Type": wire.JSON} | dict(request.get("headers", {}))
        request["headers"] = trace_headers() | dict(request.get("headers", {}))
        try:
            response = self._http.request(method, path, **request)
        except httpx.TransportError as error:
            raise _unreachable(table, error, self._tls) from error
        if not response.is_success:  # The service sends no redirects: a proxy does, for a login or for TLS.
            raise from_problem(table, response.status_code, _problem(response), response.headers.get("retry-after"))
        return response

    def send_with_retries(self, method: str, path: str, *, repeatable: bool = True, **request: Any) -> httpx.Response:
        """Send one request, with retries as in `retry`."""
        return self.retry(lambda: self.send(method, path, **request), repeatable=repeatable)

    def retry(self, attempt: Callable[[], Result], *, repeatable: bool) -> Result:
        """Call `attempt` until it succeeds, fails permanently, or the retry budget is spent.

        A `TableError` is retried if it is retriable and a second attempt is safe: the request is `repeatable`,
        or it was certainly not applied.
        """
        budget = self.new_budget()
        while True:
            try:
                return attempt()
            except TableError as error:
                safe = repeatable or error.applied == "no"
                if not (error.retriable and safe and budget.wait(error.retry_after_s, str(error))):
                    raise
                self.count_retries(1)


class _BearerAuth(httpx.Auth):
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


def _unreachable(table: str | None, error: httpx.TransportError, tls: Tls | None) -> TableError:
    rejection = None if tls is None else rejection_reason(error, tls)
    if rejection is not None:
        return TableError(table, TLS_REFUSED, 0, rejection)
    disconnected = isinstance(error, httpx.RemoteProtocolError | httpx.ReadError)
    return TableError(
        table,
        UNREACHABLE,
        0,
        f"{type(error).__name__}: {error}" + (f" ({disconnect_hint(tls)})" if tls is not None and disconnected else ""),
        retriable=not isinstance(error, httpx.UnsupportedProtocol),
        applied="no" if isinstance(error, _NOT_SENT) else "unknown",
    )


def _problem(response: httpx.Response) -> Mapping[str, Any] | None:
    if "json" not in response.headers.get("content-type", ""):
        return None
    try:
        document = response.json()
    except ValueError:
        return None
    return document if isinstance(document, dict) else None
