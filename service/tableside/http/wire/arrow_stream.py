"""Reads an Arrow IPC stream into a table, within the limits of a request."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa

from ...core import MalformedRequest, TooLarge
from ...core.concurrency import Pieces
from .arrow_columns import check_types
from .arrow_limits import decompressed_bytes, list_items, size_bytes

LIST_ITEMS_MAX = 100_000
"""The maximum number of items of all lists in a stream."""


def read(
    body: bytes, bytes_max: int, operations_max: int, reserve: Callable[[int], None] = lambda size_bytes: None
) -> Pieces[pa.Table]:
    """Read an Arrow stream. Raise MalformedRequest if it is invalid, TooLarge if it is too large once decompressed.

    `reserve` is called with the decompressed size before anything is decompressed, then with the size of the rows. It
    may raise an error.
    """
    with _refusing():
        size = max(len(body), (yield from decompressed_bytes(body)))
    if size > bytes_max:
        raise _too_many_bytes(bytes_max)
    reserve(size)
    table, rows_bytes = yield from _read(body, bytes_max, operations_max)
    reserve(rows_bytes)
    return table


def _read(body: bytes, bytes_max: int, operations_max: int) -> Pieces[tuple[pa.Table, int]]:
    with _refusing(), pa.ipc.open_stream(body) as reader:
        check_types(reader.schema)
        batches, size = yield from _bounded(reader, bytes_max, operations_max)
        return pa.Table.from_batches(batches, reader.schema), size


@contextmanager
def _refusing() -> Iterator[None]:
    """Raise MalformedRequest for an error of PyArrow."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        raise MalformedRequest(f"not an Arrow stream: {type(error).__name__}") from None


def _bounded(
    reader: pa.ipc.RecordBatchStreamReader, bytes_max: int, operations_max: int
) -> Pieces[tuple[list[pa.RecordBatch], int]]:
    """Read the record batches and their size. The rows are counted first, because their size takes time to compute."""
    batches: list[pa.RecordBatch] = []
    rows = total_bytes = items = 0
    for batch in reader:
        rows += batch.num_rows
        if rows > operations_max:
            raise TooLarge(f"a batch may have at most {operations_max} operations")
        batch.validate()
        total_bytes += size_bytes(batch)
        if total_bytes > bytes_max:
            raise _too_many_bytes(bytes_max)
        batch.validate(full=True)  # This reads the bytes of each view, also if views share them.
        items += list_items(batch)
        if items > LIST_ITEMS_MAX:
            raise TooLarge(f"the rows of a batch may list at most {LIST_ITEMS_MAX} partitions")
        batches.append(batch)
        yield
    return batches, total_bytes


def _too_many_bytes(bytes_max: int) -> TooLarge:
    return TooLarge(f"a body may have at most {bytes_max} bytes once it is decompressed")
