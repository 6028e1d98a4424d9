"""`Client`: a connection pool to one service, for programs with threads."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

import httpx

from tableside_client.blocking_table import Table
from tableside_client.calls import Call, CallSettings, Pause, Request
from tableside_client.coalescing import BATCHES_IN_FLIGHT_MAX
from tableside_client.codec import Codec
from tableside_client.credential import Credential
from tableside_client.http_options import Address
from tableside_client.retries import DEFAULT_RETRIES, Retries
from tableside_client.table_calls import TableCalls, list_tables
from tableside_client.tls import Tls
from tableside_client.waits import Waits

if TYPE_CHECKING:
    from tableside_client.arrow_table import ArrowTable

T = TypeVar("T")
V = TypeVar("V")


class Client:
    """A blocking client for the tables of one service, with one connection pool. Threads can share it.

    Calls retry temporary failures until `retries.total_s` if a second attempt is safe, so that a restart of the service
    is only a delay. A write that is not safe to repeat (an update, or a precondition) carries its own token,
    so that it counts once. All exceptions derive from `TablesideError`.

    Args:
        url: The address of the service, `http://` or `https://`. Default: the variable `TABLESIDE_URL`.
        token: The bearer token. Default: the content of `token_file`, or of the variable `TABLESIDE_TOKEN`.
        token_file: A file with the bearer token. This and the other files are read again when they change.
        ca_file: PEM file of the authorities that may sign the service's certificate, in place of the system's.
            Default: the variable `TABLESIDE_CA_FILE`.
        certificate_file: PEM file of the client's certificate, if the service requires one.
            Default: `TABLESIDE_CERTIFICATE_FILE`.
        key_file: PEM file of the certificate's key, if it is not in `certificate_file`. Default: `TABLESIDE_KEY_FILE`.
        timeout_s: The timeout of one attempt, in seconds.
        connections_max: The size of the connection pool.
        retries: The limits on retries.
        coalesce: Combine concurrent single gets into batches. They then share connections and cost less.

    Raises:
        ValueError: The arguments contradict each other, or `url` is not a valid address.
        CredentialError: The token cannot be read.
        TlsFileError: A TLS file cannot be read or used.

    Example:
        ```python
        with Client("http://127.0.0.1:8080") as client:
            people = client.table("people")
            people.put("ada", {"name": "Ada"})
            people.update("ada", {"$inc": {"visits": 1}})
            people.get("ada")  # {"name": "Ada", "visits": 1}
        ```
    """

    def __init__(
        self,
        url: str = "",
        *,
        token: str | None = None,
        token_file: str | None = None,
        ca_file: str | None = None,
        certificate_file: str | None = None,
        key_file: str | None = None,
        timeout_s: float = 30.0,
        connections_max: int = 64,
        retries: Retries = DEFAULT_RETRIES,
        coalesce: bool = False,
    ) -> None:
        address = Address.resolve(url, Credential(token, token_file), Tls(ca_file, certificate_file, key_file))
        self._url = address.url
        self._http = address.client(timeout_s, connections_max)
        self._settings = CallSettings(retries, tls=address.tls, proxy=address.proxy)
        self._waits = Waits()
        self._batch_threads = ThreadPoolExecutor(BATCHES_IN_FLIGHT_MAX, "tableside") if coalesce else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections. Calls in progress fail."""
        if self._batch_threads is not None:
            self._batch_threads.shutdown(wait=False, cancel_futures=True)
        self._http.close()

    @property
    def url(self) -> str:
        """The address of the service."""
        return self._url

    @property
    def waited_s(self) -> float:
        """The time while at least one call waited for a retry so far, in seconds."""
        return self._waits.total_s

    def tables(self) -> list[dict[str, Any]]:
        """Describe every table that the caller may see."""
        return self._run(list_tables(self._settings))

    @overload
    def table(self, name: str, *, deadline_s: float | None = None) -> Table[dict[str, Any]]: ...
    @overload
    def table(self, name: str, type: type[V], *, deadline_s: float | None = None) -> Table[V]: ...

    def table(self, name: str, type: type[Any] = dict, *, deadline_s: float | None = None) -> Table[Any]:  # noqa: A002 - the natural name
        """Return a table. No request is sent.

        Args:
            name: The name of the table.
            type: The type of its values: `dict`, a dataclass, a msgspec struct or a pydantic model.
            deadline_s: The time that each call may take with all its attempts, in seconds. The service gets it with
                each request (`Prefer: wait`).

        Raises:
            TypeError: `type` is none of these types.
        """
        calls = TableCalls(name, replace(self._settings, deadline_s=deadline_s), Codec(type))
        return Table(calls, self._run, self._batch_threads)

    def arrow_table(self, name: str) -> "ArrowTable":
        """Return a table whose batches and scans are Arrow tables. No request is sent. Requires pyarrow."""
        from tableside_client.arrow_table import ArrowTable  # the other methods work without pyarrow

        return ArrowTable(name, self._settings, self._run)

    def _run(self, call: Call[T]) -> T:
        """Perform the requests and pauses of a call."""
        reply: httpx.Response | httpx.TransportError | None = None
        while True:
            try:
                step = call.send(reply)
            except StopIteration as end:
                result: T = end.value
                return result
            if isinstance(step, Pause):
                with self._waits.waiting(step.reason):
                    time.sleep(step.seconds)
                reply = None
            else:
                reply = self._exchange(step)

    def _exchange(self, request: Request) -> httpx.Response | httpx.TransportError:
        try:
            return self._http.request(**request.arguments(self._url))
        except httpx.TransportError as failure:
            return failure
