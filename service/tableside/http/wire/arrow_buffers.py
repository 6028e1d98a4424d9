"""How large the buffers of an Arrow stream become, read before any of them is decompressed.

A few kilobytes can stand for gigabytes, and the Arrow library decompresses a whole batch before anybody can look at
it. Each compressed buffer begins with its length afterwards, and that much is what the library makes room for. Where
the buffers are stands in the message's metadata, a FlatBuffer (Message.fbs and Schema.fbs of the Arrow format).
"""

import struct
from collections.abc import Iterator

import pyarrow as pa

_HEADER, _DICTIONARY_DATA, _BUFFERS, _COMPRESSION = 2, 1, 2, 3
"""The places of fields in their tables: Message, DictionaryBatch, and the last two RecordBatch."""

_DICTIONARY, _RECORDS = "dictionary", "record batch"


def decompressed_bytes(body: bytes) -> int:
    """Return how many bytes a stream's compressed buffers become. Raise ValueError or ArrowException for no stream."""
    return sum(sum(_lengths(message)) for message in _messages(body) if message.type in (_DICTIONARY, _RECORDS))


def _messages(body: bytes) -> Iterator[pa.ipc.Message]:
    reader = pa.ipc.MessageReader.open_stream(body)
    while True:
        try:
            yield reader.read_next_message()
        except StopIteration:
            return


def _lengths(message: pa.ipc.Message) -> Iterator[int]:
    metadata, body = memoryview(message.metadata), memoryview(message.body)
    try:
        table = _followed(metadata, _field(metadata, _followed(metadata, 0), _HEADER))
        if message.type == _DICTIONARY:
            table = _followed(metadata, _field(metadata, table, _DICTIONARY_DATA))
        if not _field(metadata, table, _COMPRESSION):
            return
        vector = _followed(metadata, _field(metadata, table, _BUFFERS))
        for index in range(_unpack("<I", metadata, vector)):
            offset, size = struct.unpack_from("<qq", metadata, vector + 4 + 16 * index)
            if size:
                yield max(0, _unpack("<q", body, offset))
    except struct.error as error:
        raise ValueError("a message's metadata lead out of it") from error


def _field(metadata: memoryview, table: int, place: int) -> int:
    """Return where a table's field is, 0 if it is not there."""
    fields = table - _unpack("<i", metadata, table)
    inside = 4 + 2 * place < _unpack("<H", metadata, fields)
    within = _unpack("<H", metadata, fields + 4 + 2 * place) if inside else 0
    return table + within if within else 0


def _followed(metadata: memoryview, position: int) -> int:
    return position + _unpack("<I", metadata, position)


def _unpack(form: str, data: memoryview, position: int) -> int:
    if position < 0:
        raise struct.error("before the beginning")
    found: int = struct.unpack_from(form, data, position)[0]
    return found
