"""Reads an Arrow IPC stream into a table, within the limits of a request.

The columns have known names and types. Rows of a dictionary or a view may share the same bytes, and a compressed buffer
states the length it expands to. A short stream can therefore describe more text than fits into memory, so its size is
checked before anything is decompressed or copied. A dictionary of text or of single numbers is accepted, because its
size is known before it is expanded. A dictionary of anything else is not.
"""

import struct
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from ...core import MalformedRequest, TooLarge
from ...core.concurrency import Pieces
from .members import MEMBERS
from .operation_members import display_name

LIST_ITEMS_MAX = 100_000
"""The maximum number of items of all lists in a stream."""

KEY_PARTS_MAX = 8
"""The maximum number of fields of a struct of key parts. A table has no more."""


def read(
    body: bytes, bytes_max: int, operations_max: int, reserve: Callable[[int], None] = lambda size_bytes: None
) -> Pieces[tuple[pa.Table, int]]:
    """Read an Arrow stream, and return its rows and their size in bytes.

    Raise MalformedRequest if it is invalid, TooLarge if it is too large once decompressed.
    `reserve` is called with the decompressed size before anything is decompressed, then with the size of the rows. It
    may raise an error.
    """
    too_many_bytes = f"a body may have at most {bytes_max} bytes once it is decompressed"
    batches: list[pa.RecordBatch] = []
    rows = total_bytes = items = 0
    try:
        size = max(len(body), (yield from decompressed_bytes(body)))
        if size > bytes_max:
            raise TooLarge(too_many_bytes)
        reserve(size)
        with pa.ipc.open_stream(body) as reader:
            check_types(reader.schema)
            for batch in reader:
                rows += batch.num_rows  # They are counted first, because their size takes time to compute.
                if rows > operations_max:
                    raise TooLarge(f"a batch may have at most {operations_max} operations")
                batch.validate()
                total_bytes += size_bytes(batch)
                if total_bytes > bytes_max:
                    raise TooLarge(too_many_bytes)
                batch.validate(full=True)  # This reads the bytes of each view, also if views share them.
                items += sum(len(column.values) for column in batch.columns if _is_list(column.type))
                if items > LIST_ITEMS_MAX:
                    raise TooLarge(f"the rows of a batch may list at most {LIST_ITEMS_MAX} partitions")
                batches.append(batch)
                yield
            table = pa.Table.from_batches(batches, reader.schema)
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        raise MalformedRequest(f"not an Arrow stream: {type(error).__name__}") from None
    reserve(total_bytes)
    return table, total_bytes


def check_types(schema: pa.Schema) -> None:
    """Raise MalformedRequest if a column is unknown, occurs twice or has the wrong type."""
    _read_names(schema)
    if len(set(schema.names)) != len(schema.names):
        raise MalformedRequest("a column occurs twice")
    for field in schema:
        kind, allowed = field.type, _TYPES.get(field.name)
        if allowed is None:
            raise MalformedRequest(f"a batch has no column {display_name(field.name)}")
        if field.name == "partitions":
            valid = _is_list(kind) and kind.value_type in allowed
        elif field.name == "key" and pa.types.is_struct(kind):
            valid = kind.num_fields <= KEY_PARTS_MAX and all(_plain(part.type) in allowed for part in kind)
        else:
            valid = _plain(kind) in allowed
        if not valid:
            raise MalformedRequest(f"column {field.name!r} has the wrong type")


def check_combination(names: list[str], op: str | None, writer: str | None) -> None:
    """Raise MalformedRequest if the columns and the parameters `op` and `writer` do not belong together."""
    if "key" not in names:
        raise MalformedRequest("a batch needs a column key")
    if ("op" in names) == (op is not None):
        raise MalformedRequest("op must be either a column or a parameter")
    if "writer" in names and writer is not None:
        raise MalformedRequest("writer must be either a column or a parameter")
    if ("sequence" in names) != ("writer" in names or writer is not None):
        raise MalformedRequest(
            "a column sequence requires writer, as a column or parameter, and writer requires the column"
        )


def _read_names(fields: Iterable[pa.Field]) -> None:
    """Read all column and field names, because PyArrow raises an error for invalid UTF-8 in them only on access."""
    for field in fields:
        _ = field.name
        _read_names(field.type.field(index) for index in range(field.type.num_fields))


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


_VIEWS = frozenset({pa.string_view(), pa.binary_view()})
_TEXTS = frozenset({pa.utf8(), pa.large_utf8(), pa.string_view()})
_DOCUMENTS = _TEXTS | {pa.binary(), pa.large_binary(), pa.binary_view()}
_INTEGERS = frozenset(
    {pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()}
)

_KINDS = {
    "utf8": _TEXTS,
    "bool": frozenset({pa.bool_()}),
    "integer": _INTEGERS,
    "integer or double": _INTEGERS | {pa.float16(), pa.float32(), pa.float64()},
}

_TYPES = {
    "key": _TEXTS | _INTEGERS,
    "partitions": _INTEGERS,
    "op": _TEXTS,
    "value": _DOCUMENTS,
    "update": _DOCUMENTS,
    "default": _DOCUMENTS,
    "sequence": _INTEGERS,
    "writer": _TEXTS,
    **{member.name: _KINDS[member.column] for member in MEMBERS if member.column},
}
"""The types of a column, or of the items of its lists or structs. Outside of lists, dictionaries may have them too."""

MESSAGES_MAX = 1000
"""The maximum number of messages of a stream. Each takes some microseconds to read, even without rows."""

METADATA_BYTES_MAX = 2**18
"""The maximum size of a message's metadata: the schema, or the places of the columns' buffers."""


def size_bytes(batch: pa.RecordBatch) -> int:
    """Return the size of a batch, with bytes that rows share counted for each of them."""
    size: int = batch.nbytes
    return size + sum(_shared_bytes(column) for column in batch.columns)


def _shared_bytes(column: pa.Array) -> int:
    kind = column.type
    if pa.types.is_struct(kind):
        return sum(_shared_bytes(column.field(index)) for index in range(kind.num_fields))
    if pa.types.is_dictionary(kind) and kind.value_type in _DOCUMENTS:
        return pc.sum(_lengths(column.dictionary).take(column.indices)).as_py() or 0
    return (pc.sum(_lengths(column)).as_py() or 0) if kind in _VIEWS else 0


def _lengths(column: pa.Array) -> pa.Array:
    if column.type not in _VIEWS:
        return pc.binary_length(column)
    if not len(column):
        return pa.array([], pa.int64())  # An empty column may lack the buffer.
    # A view has 16 bytes, four integers of which the first is its length. The bytes after the last may be incomplete.
    views = memoryview(column.buffers()[1])[16 * column.offset : 16 * (column.offset + len(column))].cast("i")
    return pc.max_element_wise(pa.array(views[::4].tolist(), pa.int64()), 0)  # Views may be invalid.


_HEADER, _DICTIONARY_DATA, _BUFFERS, _COMPRESSION = 2, 1, 2, 3
"""Positions of fields in their FlatBuffers tables: Message, DictionaryBatch, and twice RecordBatch."""


def decompressed_bytes(body: bytes) -> Pieces[int]:
    """Return the decompressed size of a stream's compressed buffers.

    Raise ValueError or ArrowException if it is invalid, TooLarge if it has too many messages or too much metadata.
    """
    size, reader = 0, pa.ipc.MessageReader.open_stream(body)
    for _ in range(MESSAGES_MAX):
        try:
            message = reader.read_next_message()
        except StopIteration:
            return size
        if message.metadata.size > METADATA_BYTES_MAX:
            raise TooLarge(f"the metadata of an Arrow message may have at most {METADATA_BYTES_MAX} bytes")
        if message.type in ("dictionary", "record batch"):
            size += sum(_decompressed_lengths(message))
        yield
    raise TooLarge(f"an Arrow stream may have at most {MESSAGES_MAX} messages, such as record batches")


def _decompressed_lengths(message: pa.ipc.Message) -> Iterator[int]:
    metadata, body = memoryview(message.metadata), memoryview(message.body)
    try:
        table = _follow(metadata, _field(metadata, _follow(metadata, 0), _HEADER))
        if message.type == "dictionary":
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
