"""Batches as Arrow: decodes the rows of a table into operations.

Each row is one operation. A null means that the operation lacks that member, so a row is equivalent to the JSON object
with its other columns. In both formats, null `partitions` means all partitions.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from ...core import (
    Changes,
    InvalidOperation,
    Json,
    MalformedRequest,
    Operation,
    TableError,
    TableSpec,
    updates,
    values,
)
from ...core.changes import CHECKED_TYPES, packed
from ...core.columns import COLUMN_BYTES_MAX, KEY_BYTES_MAX, GetColumn, PutColumn, key_column
from ...core.concurrency import Pieces
from ...core.json_text import NotJson
from ...core.operations import Token
from . import operation_members
from .answers import PIECE_BYTES, never, not_decoded
from .arrow_columns import check_combination
from .arrow_keys import decode_keys
from .arrow_runs import runs
from .arrow_values import PIECE_ROWS, all_present, all_values, piece_rows, short_values
from .json_batch import Batch
from .partitions import not_partitioned
from .plain_operations import plain_gets, plain_puts, plain_updates
from .projections import Fields

MEDIA_TYPE = "application/vnd.apache.arrow.stream"

MIXED_PIECE_BYTES = 2**11
"""How many bytes of rows are decoded one by one before other requests have a turn."""

ROW_BYTES = 128
"""How many bytes a row counts besides its texts: decoding it takes as long as a text of this size."""

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
    if (column := (yield from _column(table, spec, settings, expired))) is not None:
        return Batch(column, None if settings.fields is None else [settings.fields] * len(column))
    rows = _RowDecoder(spec, settings, expired)
    operations: list[Operation | TableError] = []
    for start in range(0, table.num_rows, PIECE_ROWS):
        yield from rows.decode(table.slice(start, PIECE_ROWS), operations)
        yield
        if expired():
            operations += [not_decoded(spec)] * (table.num_rows - len(operations))
            break
    return Batch(operations, None if settings.fields is None else [settings.fields] * len(operations))


def _column(
    table: pa.Table, spec: TableSpec, settings: RowSettings, expired: Callable[[], bool]
) -> Pieces[GetColumn | PutColumn | None]:
    """Return the batch as a column if it consists of gets, or of puts, with the usual members, and all are valid."""
    if settings.op is None and table.column("op").nbytes > KEY_BYTES_MAX:
        return None
    op, rows = (settings.op, table) if settings.op is not None else next(runs(table), (None, table))
    names = set(rows.column_names)
    are_plain = not settings.returning and not spec.key.has_names and not spec.partitions
    are_puts = op == "put" and names == {"key", "value"} and are_plain and rows.nbytes <= COLUMN_BYTES_MAX
    if rows.num_rows < table.num_rows or not (are_puts or (op == "get" and names == {"key"})):
        return None
    if (keys := key_column(rows.column("key"), spec.key)) is None:
        return None
    if not are_puts:
        return GetColumn(keys)
    texts = yield from all_values(rows, expired)
    if texts is None or max(map(len, texts), default=0) > spec.value_bytes_max:
        return None
    return PutColumn(keys, pa.array(texts, pa.binary()))


class _RowDecoder:
    """Decodes the rows of one batch, until the deadline has `expired`."""

    def __init__(self, spec: TableSpec, settings: RowSettings, expired: Callable[[], bool]) -> None:
        self._spec = spec
        self._settings = settings
        self._expired = expired
        # By text, because a batch often has the same update for many records.
        self._parsed_updates: dict[Any, Changes] = {}

    def decode(self, table: pa.Table, operations: list[Operation | TableError]) -> Pieces[None]:
        """Append the operations of some rows."""
        if self._settings.op is not None:
            yield from self._run(self._settings.op, table, operations)
            return
        for op, rows in runs(table):
            yield from self._run(op, rows, operations)
            if self._expired():
                return

    def _run(self, op: str | None, rows: pa.Table, operations: list[Operation | TableError]) -> Pieces[None]:
        """Append operations of one kind, or of all kinds, with a column for it, if `op` is None."""
        size_bytes, start = rows.nbytes, 0
        while start < rows.num_rows and not (start and self._expired()):
            piece = rows.slice(start, piece_rows(rows, size_bytes))
            start += piece.num_rows
            yield from self._piece(op, piece, operations)

    def _piece(self, op: str | None, rows: pa.Table, operations: list[Operation | TableError]) -> Pieces[None]:
        if "partitions" in rows.column_names and not self._spec.partitions:
            operations += [not_partitioned()] * rows.num_rows
            yield
            return
        keys = decode_keys(rows.column("key"), self._spec)
        plain = self._plain(op, keys, rows)
        if plain is None:
            yield from self._mixed(op, keys, rows, operations)
        else:
            operations += plain
        yield

    def _plain(self, op: str | None, keys: list[Any], rows: pa.Table) -> Sequence[Operation] | None:
        """Decode operations with the usual members in one step. Return None if one has others, or may be invalid."""
        names = set(rows.column_names)
        if op == "get" and names == {"key"}:
            return plain_gets(keys, self._spec)
        if self._settings.returning:
            return None
        if op == "put" and names | {"sequence"} == {"key", "value", "sequence"}:
            texts, tokens = short_values(rows), self._tokens(rows)
            return None if texts is None or tokens is None else plain_puts(keys, texts, self._spec, tokens)
        if op == "update" and names | {"default", "sequence"} == {"key", "update", "default", "sequence"}:
            changes = self._all_changes(rows.column("update").to_pylist()) if all_present(rows, "update") else None
            defaults, tokens = self._defaults(rows), self._tokens(rows)
            if changes is None or defaults is None or tokens is None:
                return None
            return plain_updates(keys, changes, self._spec, defaults, tokens)
        return None

    def _tokens(self, rows: pa.Table) -> Sequence[Token | None] | None:
        """Return the tokens of rows, all without a token if there is no column. Return None if one may be invalid."""
        if "sequence" not in rows.column_names:
            return [None] * rows.num_rows
        sequences = rows.column("sequence").to_pylist()
        try:
            tokens = {sequence: operation_members.token(self._settings.writer, sequence) for sequence in set(sequences)}
        except InvalidOperation:
            return None
        return [tokens[sequence] for sequence in sequences]

    def _defaults(self, rows: pa.Table) -> Sequence[bytes | None] | None:
        """Return the canonical defaults of rows. Return None if one may be invalid, or depends on its key."""
        if "default" not in rows.column_names:
            return [None] * rows.num_rows
        if self._spec.key.has_names or not all_present(rows, "default"):
            return None
        texts = rows.column("default").to_pylist()
        distinct = list(set(texts))
        documents = values.parse_all(distinct) if sum(map(len, distinct)) <= PIECE_BYTES else None
        encoded = None if documents is None else values.encode_all(documents)
        if encoded is None or max(map(len, encoded), default=0) > self._spec.value_bytes_max:
            return None
        defaults = dict(zip(distinct, encoded, strict=True))
        return [defaults[text] for text in texts]

    def _all_changes(self, texts: list[Any]) -> list[Changes] | None:
        """Parse updates. Return None if one is invalid, or if the texts are too long to parse them in one step."""
        distinct = set(texts)
        if sum(map(len, distinct)) > PIECE_BYTES:
            return None
        parsed = {text: _parsed_update(text, self._parsed_updates) for text in distinct}
        valid = all(isinstance(update, CHECKED_TYPES) for update in parsed.values())
        return [parsed[text] for text in texts] if valid else None

    def _mixed(
        self, op: str | None, keys: list[Any], table: pa.Table, operations: list[Operation | TableError]
    ) -> Pieces[None]:
        names = [name for name in table.column_names if name != "key"]
        rows = zip(*(table.column(name).to_pylist() for name in names), strict=True) if names else ((),) * len(keys)
        piece_bytes = 0
        for key, row in zip(keys, rows, strict=True):
            members = {
                name: cell for name, cell in zip(names, row, strict=True) if cell is not None or name == "partitions"
            }
            piece_bytes += ROW_BYTES + sum(len(members.get(name, "")) for name in _TEXT)
            operations.append(self._operation(self._with_settings(members, key, op)))
            if piece_bytes >= MIXED_PIECE_BYTES:
                piece_bytes = 0
                yield
                if self._expired():
                    return

    def _operation(self, members: dict[str, Any]) -> Operation | TableError:
        try:
            for name in ("value", "default"):
                self._spec.check_value(members.get(name) or "")
            if members.get("op") == "update" and "update" in members:
                members["update"] = _parsed_update(members["update"], self._parsed_updates)
            for name in _TEXT:
                if name in members and not isinstance(members[name], CHECKED_TYPES):
                    members[name] = _parsed(name, members[name])
            return operation_members.operation(self._spec, members)
        except TableError as error:
            return error.with_traceback(None)

    def _with_settings(self, members: dict[str, Any], key: Any, op: str | None) -> dict[str, Any]:
        settings = self._settings
        members["key"] = key
        if op is not None:
            members["op"] = op
        if "sequence" in members or "writer" in members:
            members["token"] = {
                "writer": members.pop("writer", settings.writer),
                "sequence": members.pop("sequence", None),
            }
        if settings.returning and members.get("op") != "get":
            members["return"] = True
        return members


def _parsed(column: str, text: Any) -> Json:
    try:
        return values.parse(text)
    except NotJson as error:
        raise _malformed(column, error) from None


def _malformed(column: str, error: NotJson) -> MalformedRequest:
    return MalformedRequest(f"column {column!r}: {error.detail}")


def _parsed_update(text: Any, parsed_updates: dict[Any, Changes]) -> Any:
    """Parse each distinct update once. Return an invalid one as text, whose error is then found once more."""
    if (update := parsed_updates.get(text)) is None:
        try:
            update = parsed_updates[text] = packed(updates.parse(values.parse(text)))
        except TableError:
            return text
    return update
