"""Send requests over one connection pool: authentication, TLS, retries, and transport errors as `TableError`.

No other module imports httpx except `client`, for the type of a response.
"""

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import httpx

from tableside_client.credential import Credential
from tableside_client.errors import TableError, from_problem
from tableside_client.http_options import Address
from tableside_client.paths import JSON, json_bytes
from tableside_client.retries import Retries, RetryBudget
from tableside_client.tls import Tls
from tableside_client.tracing import trace_headers
from tableside_client.unreachable import problem_of, unreachable
from tableside_client.waits import Waits

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
        address = Address.resolve(url, credential, tls)
        self._tls = address.tls
        self._retries = retries
        self._waits = Waits()
        self._retried = 0
        self._retried_lock = threading.Lock()
        self._http = httpx.Client(**address.http_options(timeout_s, connections_max))

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
            content = json_bytes(request.pop("json"))
            request["content"] = content
            request["headers"] = {"Content-Type": JSON} | dict(request.get("headers", {}))
        request["headers"] = trace_headers() | dict(request.get("headers", {}))
        try:
            response = self._http.request(method, path, **request)
        except httpx.TransportError as error:
            raise unreachable(table, error, self._tls) from error
        if not response.is_success:  # The service sends no redirects: a proxy does, for a login or for TLS.
            raise from_problem(table, response.status_code, problem_of(response), response.headers.get("retry-after"))
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
