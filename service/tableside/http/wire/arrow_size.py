"""How much an Arrow batch holds once every row has bytes of its own.

In a dictionary, or behind views, many rows may share the same bytes: a short stream can so stand for more text than
there is memory. Knows nothing of what the columns mean.
"""

import pyarrow as pa
import pyarrow.compute as pc

VIEW_INTS = 4
VIEW_BYTES = 16
"""A view is four integers of 32 bits, the first its length."""


def size_bytes(batch: pa.RecordBatch) -> int:
    """Return the size of a batch, with bytes that rows share counted for each of them."""
    size: int = batch.nbytes
    return size + sum(_shared_bytes(column) for column in batch.columns)


def _shared_bytes(column: pa.Array) -> int:
    kind = column.type
    if pa.types.is_struct(kind):
        return sum(_shared_bytes(column.field(index)) for index in range(kind.num_fields))
    if pa.types.is_dictionary(kind) and _has_lengths(kind.value_type):
        return pc.sum(_lengths(column.dictionary).take(column.indices)).as_py() or 0
    return pc.sum(_lengths(column)).as_py() or 0 if _is_view(kind) else 0


def _lengths(column: pa.Array) -> pa.Array:
    if not _is_view(column.type):
        return pc.binary_length(column)
    if not len(column):
        return pa.array([], pa.int64())  # It need not have a buffer.
    first, last = VIEW_BYTES * column.offset, VIEW_BYTES * (column.offset + len(column))
    views = memoryview(column.buffers()[1])[first:last].cast("i")  # The rest need not be whole views.
    return pa.array(views[::VIEW_INTS].tolist(), pa.int64())


def _is_view(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string_view(kind) or pa.types.is_binary_view(kind))


def _has_lengths(kind: pa.DataType) -> bool:
    types = pa.types
    text = types.is_string(kind) or types.is_large_string(kind)
    return bool(text or types.is_binary(kind) or types.is_large_binary(kind)) or _is_view(kind)
