"""Batches as Arrow: decodes the rows of a table into operations.

Each row is one operation. A null means that the operation lacks that member, so a row is equivalent to the JSON object
with its other columns. In both formats, null `partitions` means all partitions.
"""

from collections.abc import Callable
from typing import Any

import msgspec
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
    updates,
    values,
)
from ...core.changes import CHECKED_TYPES, packed
from ...core.concurrency import Pieces
from ...core.json_errors import NotJson
from . import operation_members
from .answers import PIECE_BYTES, PIECE_OPERATIONS, never, not_decoded
from .arrow_columns import check_combination
from .json_batch import Batch
from .projections import Fields

MEDIA_TYPE = "application/vnd.apache.arrow.stream"

PIECE_ROWS = 1024
"""How many rows are converted to Python objects at once."""

_TEXT = ("value", "update", "default")


class RowSettings(msgspec.Struct, frozen=True):
    """The parameters of a request that apply to all rows."""

    op: str | None = None
    writer: str | None = None
    returning: bool = False
    fields: Fields = None


def decode(
    table: pa.Table, spec: TableSpec, settings: RowSettings, expired: Callable[[], bool] = never
) -> Pieces[Batch]:
    """Decode a batch. Raise MalformedRequest only if none of its operations can be attempted.

    Once the deadline has `expired`, the other operations are DeadlineExceeded.
    """
    check_combination(table.column_names, settings.op, settings.writer)
    rows = _RowDecoder(spec, settings)
    operations: list[Operation | TableError] = []
    for start in range(0, table.num_rows, PIECE_ROWS):
        for _ in rows.decode(table.slice(start, PIECE_ROWS), operations):
            yield
            if expired():
                break
        yield
        if expired():
            operations += [not_decoded(spec)] * (table.num_rows - len(operations))
            break
    return Batch(operations, None if settings.fields is None else [settings.fields] * len(operations))


class _RowDecoder:
    """Decodes the rows of one batch."""

    def __init__(self, spec: TableSpec, settings: RowSettings) -> None:
        self._spec = spec
        self._settings = settings
        # By text, because a batch often has the same update for many records.
        self._parsed_updates: dict[Any, Changes] = {}

    def decode(self, table: pa.Table, operations: list[Operation | TableError]) -> Pieces[None]:
        """Append the operations of some rows."""
        spec, settings = self._spec, self._settings
        keys = _keys(table.column("key"), spec)
        if settings.op == "get" and table.num_columns == 1:
            operations += _gets(keys, spec)
        elif settings.op == "put" and self._only_puts(table):
            yield from self._puts(keys, table.column("value").to_pylist(), operations)
        else:
            yield from self._mixed(keys, table, operations)

    def _only_puts(self, table: pa.Table) -> bool:
        plain = not self._settings.returning and not self._spec.key.has_names
        return plain and set(table.column_names) == {"key", "value"}

    def _puts(self, keys: list[Any], texts: list[Any], operations: list[Operation | TableError]) -> Pieces[None]:
        piece_bytes = 0
        for key, text in zip(keys, texts, strict=True):
            operations.append(_put(self._spec, key, text))
            piece_bytes += PIECE_BYTES // PIECE_OPERATIONS + (0 if text is None else len(text))
            if piece_bytes >= PIECE_BYTES:
                piece_bytes = 0
                yield

    def _mixed(self, keys: list[Any], table: pa.Table, operations: list[Operation | TableError]) -> Pieces[None]:
        names = [name for name in table.column_names if name != "key"]
        rows = zip(*(table.column(name).to_pylist() for name in names), strict=True) if names else ((),) * len(keys)
        piece_bytes = 0
        for key, row in zip(keys, rows, strict=True):
            members = {
                name: cell for name, cell in zip(names, row, strict=True) if cell is not None or name == "partitions"
            }
            piece_bytes += PIECE_BYTES // PIECE_OPERATIONS + sum(len(members.get(name, "")) for name in _TEXT)
            operations.append(_operation(self._spec, self._with_settings(members, key), self._parsed_updates))
            if piece_bytes >= PIECE_BYTES:
                piece_bytes = 0
                yield

    def _with_settings(self, members: dict[str, Any], key: Any) -> dict[str, Any]:
        settings = self._settings
        members["key"] = key
        if settings.op is not None:
            members["op"] = settings.op
        if "sequence" in members or "writer" in members:
            members["token"] = {
                "writer": members.pop("writer", settings.writer),
                "sequence": members.pop("sequence", None),
            }
        if settings.returning and members.get("op") != "get":
            members["return"] = True
        return members


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


def _put(spec: TableSpec, key: Any, text: Any) -> Operation | TableError:
    if text is None:
        return _operation(spec, {"op": "put", "key": key})
    try:
        return Put(spec.key.from_json(key), values.encode(_parse("value", text)))
    except TableError as error:
        return error.with_traceback(None)


def _operation(
    spec: TableSpec, members: dict[str, Any], parsed_updates: dict[Any, Changes] | None = None
) -> Operation | TableError:
    try:
        if parsed_updates is not None and members.get("op") == "update" and "update" in members:
            members["update"] = _parsed_update(members["update"], parsed_updates)
        for name in _TEXT:
            if name in members and not isinstance(members[name], CHECKED_TYPES):
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
            update = parsed_updates[text] = packed(updates.parse(values.parse(text)))
        except TableError:
            return text
    return update
