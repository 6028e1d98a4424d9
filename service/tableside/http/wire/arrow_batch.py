"""Batches as Arrow IPC streams: decodes the request body into operations.

Each row is one operation. A null means that the operation lacks that member, so a row is equivalent to the JSON object
with its other columns. In both formats, null `partitions` means all partitions.
"""

from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa

from ...core import (
    Changes,
    Get,
    Json,
    MalformedRequest,
    Operation,
    Put,
    TableError,
    TableSpec,
    TooLarge,
    updates,
    values,
)
from ...core.json_errors import NotJson
from . import operation_members
from .answers import Fields
from .arrow_limits import decompressed_bytes, size_bytes
from .json_batch import Batch

MEDIA_TYPE = "application/vnd.apache.arrow.stream"

_TEXT = ("value", "update", "default")


def read(body: bytes, bytes_max: int) -> pa.Table:
    """Read an Arrow stream. Raise MalformedRequest if it is invalid, TooLarge if it is too large once decompressed."""
    try:
        if decompressed_bytes(body) > bytes_max:
            raise _too_much(bytes_max)
        with pa.ipc.open_stream(body) as reader:
            _read_names(reader.schema)
            table = pa.Table.from_batches(_bounded(reader, bytes_max), reader.schema)
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        raise MalformedRequest(f"not an Arrow stream: {type(error).__name__}") from None
    return table


def decode(
    table: pa.Table,
    spec: TableSpec,
    operations_max: int,
    *,
    op: str | None,
    writer: str | None,
    returning: bool,
    fields: Fields,
) -> Batch:
    """Decode a batch. Raise MalformedRequest or TooLarge only if none of its operations can be attempted."""
    if table.num_rows > operations_max:
        raise TooLarge(f"a batch may have at most {operations_max} operations")
    _check_columns(table, op, writer)
    keys = _keys(table.column("key"), spec)
    only: list[Fields] | None = None if fields is None else [fields] * len(keys)
    if op == "get" and table.num_columns == 1:
        return Batch(_gets(keys, spec), only)
    if op == "put" and set(table.column_names) == {"key", "value"} and not returning and not spec.key.has_names:
        return Batch(_puts(keys, table.column("value").to_pylist(), spec), only)
    return Batch(_operations(table, keys, spec, op, writer, returning), only)


def _read_names(fields: Iterable[pa.Field]) -> None:
    """Read all column and field names, because PyArrow raises an error for invalid UTF-8 in them only on access."""
    for field in fields:
        _ = field.name
        _read_names(field.type.field(index) for index in range(field.type.num_fields))


def _bounded(reader: Any, bytes_max: int) -> list[pa.RecordBatch]:
    batches, total_bytes = [], 0
    for batch in reader:
        batch.validate(full=True)
        total_bytes += size_bytes(batch)
        if total_bytes > bytes_max:
            raise _too_much(bytes_max)
        batches.append(batch)
    return batches


def _too_much(bytes_max: int) -> TooLarge:
    return TooLarge(f"a body may have at most {bytes_max} bytes once it is decompressed")


def _check_columns(table: pa.Table, op: str | None, writer: str | None) -> None:
    names = table.column_names
    if len(set(names)) != len(names):
        raise MalformedRequest("a column occurs twice")
    for name in names:
        if name not in _COLUMNS:
            raise MalformedRequest(f"a batch has no column {operation_members.display_name(name)}")
        kind = table.schema.field(name).type
        if not _COLUMNS[name](kind if name == "partitions" else _plain(kind)):
            raise MalformedRequest(f"column {name!r} has the wrong type")
    if "key" not in names:
        raise MalformedRequest("a batch needs a column key")
    if ("op" in names) == (op is not None):
        raise MalformedRequest("op must be either a column or a parameter")
    if "writer" in names and writer is not None:
        raise MalformedRequest("writer must be either a column or a parameter")
    if ("sequence" in names) != ("writer" in names or writer is not None):
        raise MalformedRequest("a column sequence requires writer as a column or parameter, and the reverse")


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_part(kind: pa.DataType) -> bool:
    return _is_text(kind) or bool(pa.types.is_integer(kind))


def _is_json(kind: pa.DataType) -> bool:
    binary = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)
    return bool(binary) or _is_text(kind)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


_COLUMNS: dict[str, Callable[[pa.DataType], bool]] = {
    "key": lambda kind: _is_part(kind) or (pa.types.is_struct(kind) and all(_is_part(_plain(f.type)) for f in kind)),
    "op": _is_text,
    "value": _is_json,
    "update": _is_json,
    "default": _is_json,
    "if_match": _is_text,
    "if_absent": pa.types.is_boolean,
    "ttl_s": lambda kind: pa.types.is_integer(kind) or pa.types.is_floating(kind),
    "sequence": pa.types.is_integer,
    "writer": _is_text,
    "partitions": lambda kind: _is_list(kind) and pa.types.is_integer(kind.value_type),
}


def _keys(column: pa.ChunkedArray, spec: TableSpec) -> list[Any]:
    if not pa.types.is_struct(column.type):
        return list(column.to_pylist())
    names = [field.name for field in column.type]
    wanted = [field.name for field in spec.key.fields]
    # If the table names the parts of its key, match them by name, otherwise by order.
    order = wanted if spec.key.has_names and set(names) == set(wanted) else names
    if len(set(names)) != len(names):
        raise MalformedRequest("a part of the key occurs twice")
    return [None if key is None else tuple(key[name] for name in order) for key in column.to_pylist()]


def _gets(keys: list[Any], spec: TableSpec) -> list[Operation | TableError]:
    if spec.key.all_valid(keys):
        return list(map(Get, keys))
    return [_operation(spec, {"op": "get", "key": key}) for key in keys]


def _puts(keys: list[Any], texts: list[Any], spec: TableSpec) -> list[Operation | TableError]:
    return [_put(spec, key, text) for key, text in zip(keys, texts, strict=True)]


def _put(spec: TableSpec, key: Any, text: Any) -> Operation | TableError:
    if text is None:
        return _operation(spec, {"op": "put", "key": key})
    try:
        return Put(spec.key.from_json(key), values.encode(_parse("value", text)))
    except TableError as error:
        return error.with_traceback(None)


def _operations(
    table: pa.Table, keys: list[Any], spec: TableSpec, op: str | None, writer: str | None, returning: bool
) -> list[Operation | TableError]:
    names = [name for name in table.column_names if name != "key"]
    rows = zip(*(table.column(name).to_pylist() for name in names), strict=True) if names else ((),) * len(keys)
    operations: list[Operation | TableError] = []
    parsed_updates: dict[Any, Changes] = {}  # by text, because a batch often has the same update for many records
    for key, row in zip(keys, rows, strict=True):
        members = {
            name: cell for name, cell in zip(names, row, strict=True) if cell is not None or name == "partitions"
        }
        members["key"] = key
        if op is not None:
            members["op"] = op
        if "sequence" in members or "writer" in members:
            members["token"] = {"writer": members.pop("writer", writer), "sequence": members.pop("sequence", None)}
        if returning and members.get("op") != "get":
            members["return"] = True
        operations.append(_operation(spec, members, parsed_updates))
    return operations


def _operation(
    spec: TableSpec, members: dict[str, Any], parsed_updates: dict[Any, Changes] | None = None
) -> Operation | TableError:
    try:
        if parsed_updates is not None and members.get("op") == "update" and "update" in members:
            members["update"] = _parsed_update(members["update"], parsed_updates)
        for name in _TEXT:
            if name in members and type(members[name]) is not tuple:
                members[name] = _parse(name, members[name])
        if members.get("if_absent") is False:
            del members["if_absent"]
        return operation_members.operation(spec, members)
    except TableError as error:
        return error.with_traceback(None)


def _parse(column: str, text: Any) -> Json:
    try:
        return values.parse(text)
    except NotJson as error:
        raise MalformedRequest(f"column {column!r}: {error.detail}") from None


def _parsed_update(text: Any, parsed_updates: dict[Any, Changes]) -> Any:
    """Parse each distinct update once. Return an invalid one as text, for which `_operation` then returns the error."""
    if (update := parsed_updates.get(text)) is None:
        try:
            update = parsed_updates[text] = updates.parse(values.parse(text))
        except TableError:
            return text
    return update
