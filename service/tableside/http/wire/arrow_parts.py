"""Arrow streams of large values, in parts, so that a value is copied only once."""

from collections.abc import Sequence
from itertools import accumulate

import pyarrow as pa

from ...core.concurrency import PIECE_BYTES, Pieces
from .body_parts import Encoded, joined

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
