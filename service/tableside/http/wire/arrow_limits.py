"""The size of an Arrow batch once its buffers are decompressed and every row has its own copy of its bytes.

Rows of a dictionary or a view may share the same bytes, and a compressed buffer states the length it expands to. A
short stream can therefore describe more text than fits into memory.
"""

import struct
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from ...core import TooLarge
from ...core.concurrency import Pieces

MESSAGES_MAX = 1000
"""The maximum number of messages of a stream. Each takes some microseconds to read, even without rows."""

METADATA_BYTES_MAX = 2**18
"""The maximum size of a message's metadata: the schema, or the places of the columns' buffers."""

VIEW_INTS = 4
VIEW_BYTES = 16
"""A view consists of four 32-bit integers. The first is its length."""


def size_bytes(batch: pa.RecordBatch) -> int:
    """Return the size of a batch, with bytes that rows share counted for each of them."""
    size: int = batch.nbytes
    return size + sum(_shared_bytes(column) for column in batch.columns)


def _shared_bytes(column: pa.Array) -> int:
    kind = column.type
    if pa.types.is_struct(kind):
        return sum(_shared_bytes(column.field(index)) for index in range(kind.num_fields))
    if not (pa.types.is_dictionary(kind) or _is_view(kind)) or (lengths := text_lengths(column)) is None:
        return 0
    return pc.sum(lengths).as_py() or 0


def text_lengths(column: pa.Array) -> pa.Array | None:
    """Return the size of each row's text in bytes, None for a column without text."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _lengths(column.dictionary).take(column.indices) if _has_lengths(kind.value_type) else None
    return _lengths(column) if _has_lengths(kind) else None


def list_items(batch: pa.RecordBatch) -> int:
    """Return the number of items in all lists of a batch."""
    lists = [column for column in batch.columns if pa.types.is_list(column.type) or pa.types.is_large_list(column.type)]
    return sum(len(column.values) for column in lists)


def _lengths(column: pa.Array) -> pa.Array:
    if not _is_view(column.type):
        return pc.binary_length(column)
    if not len(column):
        return pa.array([], pa.int64())  # An empty column may lack the buffer.
    first, last = VIEW_BYTES * column.offset, VIEW_BYTES * (column.offset + len(column))
    views = memoryview(column.buffers()[1])[first:last].cast("i")  # The bytes after the last view may be incomplete.
    return pc.max_element_wise(pa.array(views[::VIEW_INTS].tolist(), pa.int64()), 0)  # Views may be invalid.


def _is_view(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string_view(kind) or pa.types.is_binary_view(kind))


def _has_lengths(kind: pa.DataType) -> bool:
    types = pa.types
    text = types.is_string(kind) or types.is_large_string(kind)
    return bool(text or types.is_binary(kind) or types.is_large_binary(kind)) or _is_view(kind)


_HEADER, _DICTIONARY_DATA, _BUFFERS, _COMPRESSION = 2, 1, 2, 3
"""Positions of fields in their FlatBuffers tables: Message, DictionaryBatch, and twice RecordBatch."""

_DICTIONARY, _RECORDS = "dictionary", "record batch"


def decompressed_bytes(body: bytes) -> Pieces[int]:
    """Return the decompressed size of a stream's compressed buffers.

    Raise ValueError or ArrowException if it is invalid, TooLarge if it has too many messages or too much metadata.
    """
    size = 0
    for message in _messages(body):
        if message.type in (_DICTIONARY, _RECORDS):
            size += sum(_decompressed_lengths(message))
        yield
    return size


def _messages(body: bytes) -> Iterator[pa.ipc.Message]:
    reader = pa.ipc.MessageReader.open_stream(body)
    for _ in range(MESSAGES_MAX):
        try:
            message = reader.read_next_message()
        except StopIteration:
            return
        if message.metadata.size > METADATA_BYTES_MAX:
            raise TooLarge(f"the metadata of an Arrow message may have at most {METADATA_BYTES_MAX} bytes")
        yield message
    raise TooLarge(f"an Arrow stream may have at most {MESSAGES_MAX} messages, such as record batches")


def _decompressed_lengths(message: pa.ipc.Message) -> Iterator[int]:
    metadata, body = memoryview(message.metadata), memoryview(message.body)
    try:
        table = _follow(metadata, _field(metadata, _follow(metadata, 0), _HEADER))
        if message.type == _DICTIONARY:
            table = _follow(metadata, _field(metadata, table, _DICTIONARY_DATA))
        if not _field(metadata, table, _COMPRESSION):
            return
        vector = _follow(metadata, _field(metadata, table, _BUFFERS))
        for index in range(_unpack("<I", metadata, vector)):
            offset, size = struct.unpack_from("<qq", metadata, vector + 4 + 16 * index)
            if size:
                yield max(0, _unpack("<q", body, offset))
    except struct.error as error:
        raise ValueError("a message's metadata point outside the message") from error


def _field(metadata: memoryview, table: int, place: int) -> int:
    """Return the position of a table's field, 0 if the field is absent."""
    fields = table - _unpack("<i", metadata, table)
    inside = 4 + 2 * place < _unpack("<H", metadata, fields)
    within = _unpack("<H", metadata, fields + 4 + 2 * place) if inside else 0
    return table + within if within else 0


def _follow(metadata: memoryview, position: int) -> int:
    return position + _unpack("<I", metadata, position)


def _unpack(form: str, data: memoryview, position: int) -> int:
    if position < 0:
        raise struct.error("position before the beginning")
    found: int = struct.unpack_from(form, data, position)[0]
    return found
