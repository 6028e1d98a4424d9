"""Divide rows into the chunks of requests."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa


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
