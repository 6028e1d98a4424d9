"""The table and the connection of a job, the client of a process, and its use by one Spark task."""

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

import pyarrow as pa

from tableside_client import Client
from tableside_client.address import service_url
from tableside_client.arrow_table import ChunkSize
from tableside_client.concurrency import map_ordered
from tableside_client.errors import GenerationNotFound, TableError
from tableside_client.retries import DEFAULT_RETRIES, RequestWindow, Retries
from tableside_client.table_schema import TableSchema
from tableside_client.tls import Tls


@dataclass(frozen=True, slots=True)
class Connection:
    """The arguments of the clients in other processes. Raises `ValueError` for an invalid address, or useless files."""

    url: str = ""
    token: str | None = field(default=None, repr=False)
    token_file: str | None = None
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    timeout_s: float = 30.0
    retries: Retries = DEFAULT_RETRIES

    def __post_init__(self) -> None:
        object.__setattr__(self, "url", service_url(self.url))
        Tls(self.ca_file, self.certificate_file, self.key_file).require_https(self.url)

    def open(self) -> Client:
        """Open a new client. The caller closes it."""
        return Client(**{argument.name: getattr(self, argument.name) for argument in fields(self)})


_shared: dict[tuple[int, Connection], Client] = {}
_shared_lock = threading.Lock()


def shared_client(connection: Connection) -> Client:
    """Return this process's client for a connection, opening it at first use. Tasks and jobs reuse its connections."""
    cache_key = (os.getpid(), connection)  # A forked child must not use its parent's sockets.
    with _shared_lock:
        if cache_key not in _shared:
            _shared[cache_key] = connection.open()
        return _shared[cache_key]


@dataclass(frozen=True, slots=True)
class Target:
    """A table as `Table` describes it: the connection, the name, and the limits on requests."""

    connection: Connection
    table: str
    in_flight_max: int
    chunk: ChunkSize


def fetch_table_schema(connection: Connection, table: str, *, must_exist: bool = False) -> TableSchema:
    """Fetch the schema of a table. If it does not exist, return the defaults, or raise with `must_exist`."""
    with connection.open() as client:
        try:
            description = client.table(table).describe()
        except TableError as error:
            if must_exist or error.code != "table_not_found":
                raise
            return TableSchema()
    return TableSchema.from_description(description)


Item = TypeVar("Item")
Result = TypeVar("Result")


class TaskClient:
    """The shared client, with an adaptive number of requests in flight. Thread-safe."""

    def __init__(self, connection: Connection, table: str, in_flight_max: int) -> None:
        self._client = shared_client(connection)
        self._table = self._client.arrow_table(table)
        self._in_flight_max = in_flight_max
        self._window = RequestWindow(in_flight_max)
        self._lock = threading.Lock()
        self._taken_s = self._client.waited_s

    def map(self, items: Iterable[Item], call: Callable[[Item], Result]) -> Iterator[Result]:
        """Yield `call(item)` in order, for as many items at a time as the window of requests allows."""
        return map_ordered(items, call, self._in_flight_max, lambda: self._window.size)

    def batch(self, operations: pa.Table, **options: Any) -> pa.Table:
        """Send operations as `ArrowTable.batch` does, and adapt the window."""
        return self._table.batch(operations, window=self._window, **options)

    def take_waited_ms(self) -> int:
        """Return the milliseconds waited for retries since the last call. A worker runs one task after the other."""
        with self._lock:
            waited_ms = int((self._client.waited_s - self._taken_s) * 1000)
            self._taken_s += waited_ms / 1000
            return waited_ms


@contextmanager
def one_generation() -> Iterator[None]:
    """Read in one generation of a table during the block. The error says so if it is removed."""
    try:
        yield
    except GenerationNotFound as error:
        advice = "A query reads one generation: create its DataFrame again, or raise the table's generations_kept"
        detail = f"{error.detail}. {advice}"
        raise GenerationNotFound(error.table, error.code, error.status, detail) from None
