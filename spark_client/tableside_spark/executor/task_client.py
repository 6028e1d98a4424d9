"""The client of a process of Spark, and what a task adds: requests in flight, waits for retries, and threads."""

import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pyarrow as pa

from tableside_client import Client
from tableside_client.concurrency import map_ordered
from tableside_client.credential import Credential
from tableside_client.errors import GenerationNotFound
from tableside_client.retries import DEFAULT_RETRIES, RequestWindow, Retries
from tableside_client.tls import Tls


@dataclass(frozen=True, slots=True)
class Connection:
    """Everything needed to open a client in another process. A job contains it in serialized form."""

    url: str
    credential: Credential = field(default_factory=Credential)
    timeout_s: float = 30.0
    retries: Retries = DEFAULT_RETRIES
    tls: Tls = field(default_factory=Tls)

    def open(self) -> Client:
        """Open a new client. The caller closes it."""
        return Client(
            self.url,
            token=self.credential.literal,
            token_file=self.credential.path,
            ca_file=self.tls.ca_file,
            certificate_file=self.tls.certificate_file,
            key_file=self.tls.key_file,
            timeout_s=self.timeout_s,
            retries=self.retries,
        )


_shared: dict[tuple[int, Connection], Client] = {}
_shared_lock = threading.Lock()


def shared_client(connection: Connection) -> Client:
    """Return this process's client for a connection, opening it at first use.

    The client is never closed, so that its connection pool is reused across tasks and jobs. The process id is part of
    the key, because a forked child must not use its parent's sockets.
    """
    cache_key = (os.getpid(), connection)
    with _shared_lock:
        if cache_key not in _shared:
            _shared[cache_key] = connection.open()
        return _shared[cache_key]


Item = TypeVar("Item")
Result = TypeVar("Result")


class TaskClient:
    """The shared client, with an adaptive number of requests in flight. Thread-safe.

    Attributes:
        waits: The time that the task waits for retries.
    """

    def __init__(self, connection: Connection, table: str, in_flight_max: int) -> None:
        client = shared_client(connection)
        self._table = client.arrow_table(table)
        self._in_flight_max = in_flight_max
        self._window = RequestWindow(in_flight_max)
        self.waits = TaskWaits(client)

    def map(self, items: Iterable[Item], call: Callable[[Item], Result]) -> Iterator[Result]:
        """Yield `call(item)` in order, for as many items at a time as the window of requests allows."""
        return map_ordered(items, call, self._in_flight_max, lambda: self._window.size)

    def batch(self, operations: pa.Table, **options: Any) -> pa.Table:
        """Send operations as `ArrowTable.batch` does, and adapt the window."""
        return self._table.batch(operations, window=self._window, **options)


@contextmanager
def one_generation() -> Iterator[None]:
    """Read in one generation of a table during the block. The error says so if it is removed."""
    try:
        yield
    except GenerationNotFound as error:
        advice = "A query reads one generation: create its DataFrame again, or raise the table's generations_kept"
        detail = f"{error.detail}. {advice}"
        raise GenerationNotFound(error.table, error.code, error.status, detail) from None


REPORT_MIN_S = 1.0
"""A shorter wait of a whole task is not logged."""

log = logging.getLogger(__name__)


class TaskWaits:
    """Measures the waits of a client during a task. Thread-safe.

    Tasks of one Python worker run one after the other, so a worker's client serves one task at a time.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._taken_s = client.waited_s

    def take_ms(self) -> int:
        """Return the milliseconds waited since the last call, or since the start of the task."""
        with self._lock:
            waited_ms = int((self._client.waited_s - self._taken_s) * 1000)
            self._taken_s += waited_ms / 1000
            return waited_ms

    def logged(self, table: str, results: Iterator[Result]) -> Iterator[Result]:
        """Yield the results of the task, and log its waits at its end."""
        try:
            yield from results
        finally:
            waited_s = self.take_ms() / 1000
            if waited_s >= REPORT_MIN_S:
                log.warning("table %s: the task waited %.1f s for retries", table, waited_s)


def read_ahead(items: Iterator[Item]) -> Iterator[Item]:
    """Yield the items, which are not None, in order, and compute one item ahead of the consumer.

    An error is raised in the place of its item. Closing the iterator does not wait for the item ahead. Items are
    computed in the context of the first item's consumer, with its trace span.
    """
    pool, context = ThreadPoolExecutor(1, thread_name_prefix="tableside"), copy_context()

    def following() -> Item | None:
        return next(items, None)

    try:
        ahead = pool.submit(context.run, following)
        while (item := ahead.result()) is not None:
            ahead = pool.submit(context.run, following)
            yield item
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
