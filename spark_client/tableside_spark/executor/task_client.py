"""The client as one Spark task uses it: chunks of rows, requests in flight, waits for retries, and threads."""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa

from tableside_client import Client
from tableside_client.blocking import Connection, shared_client
from tableside_client.retries import RequestWindow

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


def map_ordered(
    items: Iterable[Item], call: Callable[[Item], Result], window: int, size: Callable[[], int] | None = None
) -> Iterator[Result]:
    """Yield `call(item)` for every item in order, with at most `window` calls at a time.

    `size` returns the current limit, from 1 to `window`. Without it, the limit is always `window`.

    Items are consumed only as results are consumed, so that at most `window` items and results exist together. Closing
    the iterator, or an error, cancels calls that have not started. A call runs in the consumer's
    context, with its trace span.
    """
    pool = ThreadPoolExecutor(window, thread_name_prefix="tableside")
    waiting: deque[Future[Result]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(copy_context().run, call, item))
            while len(waiting) >= (window if size is None else size()):
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


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


@dataclass(frozen=True, slots=True)
class ChunkSize:
    """The maximum size of one request.

    Attributes:
        rows_max: The maximum number of rows.
        bytes_max: The maximum size in bytes, as Arrow buffers. A single row may exceed it.
    """

    rows_max: int = 5_000
    bytes_max: int = 4 * 1024 * 1024


def chunks(batches: Iterable[pa.RecordBatch], size: ChunkSize) -> Iterator[pa.RecordBatch]:
    """Yield the rows of `batches` in their order, in chunks as large as `size` allows.

    Small batches are concatenated, and large ones are sliced without copying. At most one chunk and one source batch
    are in memory.
    """
    pending: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        start = 0
        while start < batch.num_rows:
            piece = batch.slice(start, size.rows_max - rows)
            pending.append(piece)
            start += piece.num_rows
            rows += piece.num_rows
            if rows == size.rows_max or sum(part.nbytes for part in pending) >= size.bytes_max:
                yield from _split_by_bytes(_merge(pending), size.bytes_max)
                pending, rows = [], 0
    if pending:
        yield from _split_by_bytes(_merge(pending), size.bytes_max)


def _merge(pending: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(pending) == 1:
        return pending[0]
    return pa.Table.from_batches(pending).combine_chunks().to_batches()[0]


def _split_by_bytes(chunk: pa.RecordBatch, bytes_max: int) -> Iterator[pa.RecordBatch]:
    if chunk.nbytes <= bytes_max or chunk.num_rows < 2:
        yield chunk
        return
    half = chunk.num_rows // 2
    yield from _split_by_bytes(chunk.slice(0, half), bytes_max)
    yield from _split_by_bytes(chunk.slice(half), bytes_max)
