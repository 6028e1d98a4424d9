"""Bodies in parts, so that a large value is not copied, also in Arrow streams."""

from collections.abc import Sequence
from itertools import accumulate
from typing import TypeAlias

import pyarrow as pa

from ...core.concurrency import PIECE_BYTES, Pieces

Encoded: TypeAlias = bytes | Sequence[bytes | memoryview]
"""A body: as one text, or as its parts."""

PART_BYTES_MIN = 2**16
"""Shorter parts are joined with those before them."""


def join_short(parts: Sequence[bytes | memoryview]) -> list[bytes | memoryview]:
    """Return the same bytes in as few parts as possible. Parts of `PART_BYTES_MIN` and more are not copied."""
    if max(map(len, parts)) < PART_BYTES_MIN:
        return [b"".join(parts)]
    found: list[bytes | memoryview] = []
    short: list[bytes | memoryview] = []
    for part in parts:
        if len(part) < PART_BYTES_MIN:
            short.append(part)
            continue
        found += [b"".join(short), part]
        short = []
    return [one for one in (*found, b"".join(short)) if one]


def joined(parts: Sequence[bytes | memoryview]) -> Encoded:
    """Return the body that has these parts: as one text if all are short."""
    [first, *others] = found = join_short(parts)
    return first if isinstance(first, bytes) and not others else found


JOINED_BYTES_MAX = 2**20
"""Longer streams go out as parts of PyArrow's memory, and longer columns are built in memory of their size."""


_OPTIONS = pa.ipc.IpcWriteOptions()  # Without options, PyArrow reads environment variables for each stream.


def binary_column(values: Sequence[bytes | None]) -> Pieces[pa.Array]:
    """Return a column of values. PyArrow would grow a large one in steps to twice its size, and copy it at once."""
    size_bytes = sum(map(len, filter(None, values)))
    if size_bytes <= JOINED_BYTES_MAX:
        return pa.array(values, pa.binary())
    ends = list(accumulate((len(value or b"") for value in values), initial=0))
    text = pa.allocate_buffer(size_bytes)
    view, copied_to = memoryview(text).cast("B"), 0
    for value, start, end in zip(values, ends, ends[1:], strict=False):
        if value:
            view[start:end] = value
        if end - copied_to >= PIECE_BYTES:
            copied_to = end
            yield
    present = pa.array([value is not None for value in values], pa.bool_())
    return pa.Array.from_buffers(
        pa.binary(), len(values), [present.buffers()[1], pa.array(ends, pa.int32()).buffers()[1], text]
    )


def encode_stream(batch: pa.RecordBatch) -> Encoded:
    """Encode one record batch as an Arrow stream."""
    if batch.get_total_buffer_size() > JOINED_BYTES_MAX:
        sink = _Parts()
        _write(batch, pa.PythonFile(sink, mode="w"))
        return joined(sink.parts)
    buffer = pa.BufferOutputStream()
    _write(batch, buffer)
    stream: bytes = buffer.getvalue().to_pybytes()
    return stream


def _write(batch: pa.RecordBatch, sink: pa.NativeFile) -> None:
    with pa.ipc.new_stream(sink, batch.schema, options=_OPTIONS) as stream:
        stream.write_batch(batch)


class _Parts:
    """A file that keeps the buffers that are written to it. PyArrow passes those of a column without a copy."""

    closed = False

    def __init__(self) -> None:
        self.parts: list[memoryview] = []

    def write(self, data: "bytes | pa.Buffer") -> int:
        """Add a part."""
        part = memoryview(data).cast("B")
        self.parts.append(part)
        return len(part)

    def flush(self) -> None:
        """Do nothing."""
