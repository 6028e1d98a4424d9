"""A stream of Arrow batches cut to chunks, by rows and by bytes. Pure; knows neither Spark nor the service."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class ChunkSize:
    """Upper bounds of one chunk. A single row may exceed the bytes, since it cannot be cut."""

    rows_max: int = 5_000
    bytes_max: int = 4 * 1024 * 1024


def chunks(batches: Iterable[pa.RecordBatch], size: ChunkSize) -> Iterator[pa.RecordBatch]:
    """The rows of `batches`, in their order, in chunks as large as `size` allows.

    Small batches are joined, large ones are sliced without copying. Never holds more than one chunk and one
    batch of the source.
    """
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        start = 0
        while start < batch.num_rows:
            piece = batch.slice(start, size.rows_max - rows)
            held.append(piece)
            start += piece.num_rows
            rows += piece.num_rows
            if rows == size.rows_max or sum(part.nbytes for part in held) >= size.bytes_max:
                yield from _within_bytes(_joined(held), size.bytes_max)
                held, rows = [], 0
    if held:
        yield from _within_bytes(_joined(held), size.bytes_max)


def _joined(held: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(held) == 1:
        return held[0]
    return pa.Table.from_batches(held).combine_chunks().to_batches()[0]


def _within_bytes(chunk: pa.RecordBatch, bytes_max: int) -> Iterator[pa.RecordBatch]:
    if chunk.nbytes <= bytes_max or chunk.num_rows < 2:
        yield chunk
        return
    half = chunk.num_rows // 2
    yield from _within_bytes(chunk.slice(0, half), bytes_max)
    yield from _within_bytes(chunk.slice(half), bytes_max)
