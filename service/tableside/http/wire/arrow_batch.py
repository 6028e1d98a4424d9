"""Batches as Arrow: decodes the rows of a table into operations and encodes the outcomes.

Each row is one operation. A null means that the operation lacks that member, so a row is equivalent to the JSON object
with its other columns. In both formats, null `partitions` means all partitions.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from itertools import accumulate, product, repeat
from typing import Annotated, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from fastapi import Query
from pydantic import PlainValidator, WithJsonSchema

from ...core import NO_DEADLINE, Budget, MalformedRequest, Results, TableError, TableSpec, values
from ...core.batch import as_list, cells_at
from ...core.concurrency import PIECE_BYTES, PIECE_OPERATIONS, Pieces
from ...core.operations import WRITER_CHARACTERS_MAX, Outcome, PartitionOutcome, Record, Written
from ...core.values import NotJson
from . import operation_members
from .answers import RECORD_NOT_FOUND, Encoded, binary_column, encode_stream, expiry_column, status, to_array
from .arrow_stream import check_combination
from .members import KINDS
from .operation_columns import DecodedBatch, OperationColumns, decode_by_kind, joined_batch
from .projections import Fields
from .request_headers import parse_boolean, parse_fields

LARGE_PIECE = 4
"""A piece with so many times `PIECE_BYTES`, because its rows are larger than the average, is divided again."""


class ArrowOptions(msgspec.Struct, frozen=True):
    """The parameters for all rows of an Arrow batch."""

    op: Annotated[
        str | None,
        WithJsonSchema({"type": "string", "enum": [*KINDS]}),
        Query(description="For Arrow only. The operation of every row."),
    ] = None
    writer: Annotated[
        str | None,
        WithJsonSchema({"type": "string", "minLength": 1, "maxLength": WRITER_CHARACTERS_MAX}),
        Query(description="For Arrow only. The writer of the tokens."),
    ] = None
    returning: Annotated[
        bool,
        PlainValidator(partial(parse_boolean, what="return")),
        WithJsonSchema({"type": "boolean"}),
        Query(alias="return", description="For Arrow only. Whether the results of writes contain the value."),
    ] = False
    fields: Annotated[
        Fields,
        PlainValidator(parse_fields),
        WithJsonSchema({"type": "string"}),
        Query(description="For Arrow only. Comma-separated names of the top-level members to return."),
    ] = None


def decode(
    table: pa.Table, size_bytes: int, spec: TableSpec, settings: ArrowOptions, budget: Budget = NO_DEADLINE
) -> Pieces[DecodedBatch]:
    """Decode the rows of a stream of this size. Raise MalformedRequest only if none of them can be attempted.

    Operations that are not decoded by the deadline are DeadlineExceeded.
    """
    check_combination(table.column_names, settings.op, settings.writer)
    table = _expanded(table)
    parts, columns, done = list[DecodedBatch](), OperationColumns(spec, texts=True), 0
    keys = spec.key.checked_strings(table.column("key"))
    # An array takes no time for each row, so rows without other columns are one piece.
    for piece in _pieces(table, size_bytes) if keys is None or table.num_columns > 1 else [table]:
        if done and budget.is_over():
            parts.append(DecodedBatch([], dict.fromkeys(range(table.num_rows - done), budget.exceeded())))
            break
        strings = None if keys is None else keys[done : done + piece.num_rows]
        parts.append(_decode_rows(piece, strings, spec, settings, columns))
        done += piece.num_rows
        yield
    return joined_batch(parts, table.column_names)


def _expanded(rows: pa.Table) -> pa.Table:
    """Return rows without dictionaries, so that the size of a part is known. The size of all was checked before."""
    for index, field in enumerate(rows.schema):
        if pa.types.is_dictionary(field.type):
            with suppress(pa.ArrowNotImplementedError):  # a dictionary of views
                rows = rows.set_column(index, field.name, rows.column(index).cast(field.type.value_type))
    return rows


def _pieces(rows: pa.Table, size_bytes: int) -> Iterator[pa.Table]:
    """Divide rows of this size into pieces that are decoded in one step."""
    count = max(1, min(PIECE_OPERATIONS, PIECE_BYTES * rows.num_rows // max(1, size_bytes)))
    for start in range(0, rows.num_rows, count):
        piece = rows.slice(start, count)
        if count < rows.num_rows and piece.num_rows > 1 and piece.nbytes > LARGE_PIECE * PIECE_BYTES:
            yield from _pieces(piece, piece.nbytes)
        else:
            yield piece


def _decode_rows(
    rows: pa.Table, keys: pa.Array | None, spec: TableSpec, settings: ArrowOptions, columns: OperationColumns
) -> DecodedBatch:
    """Decode rows. `keys` are from `checked_strings`."""
    if "partitions" in rows.column_names and not spec.partitions:
        return DecodedBatch([], dict.fromkeys(range(rows.num_rows), operation_members.not_partitioned()))
    cells: dict[str, Any] = {}
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        if name == "value" and (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
            column = column.cast(pa.large_binary())  # Stores keep bytes.
        if name == "key":
            cells[name] = decode_keys(column, spec) if keys is None else keys
        elif name == "op" and len(kinds := column.unique()) == 1:
            cells[name] = kinds.to_pylist() * rows.num_rows
        else:
            cells[name] = column.to_pylist()
    ops = cells.pop("op", None) or [settings.op] * rows.num_rows
    if (sequences := cells.pop("sequence", None)) is not None:
        writers = cells.pop("writer", None) or [None] * rows.num_rows
        cells["token"] = list(map(_token, writers, sequences, repeat(settings.writer)))

    def decode_kind(op: str, positions: Sequence[int]) -> DecodedBatch:
        count, given = len(positions), cells
        if count < rows.num_rows:
            given = {name: cells_at(column, positions) for name, column in cells.items()}
        members = {
            name: column
            for name, column in given.items()
            if name in ("key", "partitions") or column.count(None) < count
        }
        if settings.returning and op != "get":
            members["return"] = [True] * count
        others = members.keys() - columns.known(op)
        known = {name: column for name, column in members.items() if name not in others}
        return columns.decode(op, known, partial(_row, spec, members), range(count) if others else ())

    decoded = decode_by_kind(ops, {}, decode_kind)
    if settings.fields is not None:
        decoded = msgspec.structs.replace(decoded, fields=[settings.fields] * rows.num_rows)
    return decoded


def _token(writer: str | None, sequence: int | None, common_writer: str | None) -> Any:
    """Return the token of a row as in JSON, None if it has none, or False if it has only a part of one."""
    if sequence is not None and (writer := writer or common_writer) is not None:
        return {"writer": writer, "sequence": sequence}
    return None if writer is None and sequence is None else False


def _row(spec: TableSpec, members: Mapping[str, Any], at: int) -> operation_members.Members:
    """Return the members of one row, with its documents parsed."""
    row = {name: as_list(cells[at : at + 1])[0] for name, cells in members.items()}
    found = {name: cell for name, cell in row.items() if cell is not None or name == "partitions"}
    for name in ("value", "default"):
        spec.check_value(found.get(name) or "")
    for name, cell in found.items():
        if name in ("value", "update", "default"):
            try:
                found[name] = values.parse(cell)
            except NotJson as error:
                raise MalformedRequest(f"column {name!r}: {error.detail}") from None
    return found


def decode_keys(column: pa.ChunkedArray, spec: TableSpec) -> list[Any]:
    """Return the keys as in JSON.

    Raise MalformedRequest if they have two parts of the same name, or would go by order although a part has the name of
    another one.
    """
    if not pa.types.is_struct(column.type):
        return list(column.to_pylist())
    names = [field.name for field in column.type]
    wanted = [field.name or "" for field in spec.key.fields]
    if len(set(names)) != len(names):
        raise MalformedRequest("a part of the key occurs twice")
    # If the table names the parts of its key, match them by name, otherwise by order.
    by_name = set(names) == set(wanted)
    pairs = product(enumerate(names), enumerate(wanted))
    if not by_name and any(at != place and one.casefold() == other.casefold() for (at, one), (place, other) in pairs):
        raise MalformedRequest(f"the parts of the key must have the table's names: {', '.join(wanted)}")
    parts = [part.to_pylist() for part in column.flatten()]
    order = [names.index(name) for name in wanted] if by_name else range(len(names))
    keys: list[Any] = list(zip(*(parts[at] for at in order), strict=True)) if names else [()] * len(column)
    if column.null_count:
        return [key if valid else None for key, valid in zip(keys, column.is_valid().to_pylist(), strict=True)]
    return keys


_ERRORS = {"code": pa.utf8(), "detail": pa.utf8(), "retriable": pa.bool_(), "applied": pa.utf8()}
"""The columns that are null for a success, and their types."""


def encode(outcomes: Sequence[Outcome], flags: Collection[str], *, partitioned: bool) -> Pieces[Encoded]:
    """Encode the outcomes, one row each.

    The `flags` of outcomes follow the other columns, then `expires_at` if any record has an expiry. For a partitioned
    table, `partitions` and `dropped` are the last ones.
    """
    columns = yield from _columns(outcomes, flags)
    if partitioned:
        partitions: list[Sequence[PartitionOutcome] | None] = [None] * len(outcomes)
        if not isinstance(outcomes, Results):
            partitions = [getattr(outcome, "partitions", None) for outcome in outcomes]
        columns["partitions"] = yield from _partitions(partitions, flags)
        columns["dropped"] = pa.array([each == () for each in partitions], pa.bool_())
    return encode_stream(pa.record_batch(columns))


def _columns(outcomes: Sequence[Outcome], flags: Collection[str]) -> Pieces[dict[str, pa.Array]]:
    """Return the columns that each answer has."""
    count, errors, values = len(outcomes), _errors(outcomes), _column(outcomes, "value", None)
    columns = {"status": _statuses(outcomes, errors), "value": _array(None, pa.binary(), count)}
    if values is not None:
        columns["value"] = yield from binary_column(values)
    yield
    columns["etag"] = _array(_column(outcomes, "etag", None), pa.utf8(), count)
    yield
    for name, kind in _ERRORS.items():
        details = {at: getattr(error, name) for at, error in errors.items()}
        columns[name] = _array(_replaced([None] * count, details) if errors else None, kind, count)
    for name in flags:
        columns[name] = _array(_column(outcomes, name, False), pa.bool_(), count, absent=False)
    if values is not None and (expires_ms := _column(outcomes, "expires_ms", 0)) is not None:
        shown = pc.if_else(columns["value"].is_valid(), to_array(expires_ms, pa.int64()), 0)
        if pc.any(pc.greater(shown, 0)).as_py():
            columns["expires_at"] = expiry_column(shown)
    return columns


def _column(outcomes: Sequence[Outcome], name: str, absent: object) -> Sequence[Any] | None:
    """Return the values of a field, in which that of an error is `absent`. None means that all are."""
    if not isinstance(outcomes, Results):
        return [getattr(outcome, name, absent) for outcome in outcomes]
    if outcomes.failed and name in outcomes.columns:
        return _replaced(outcomes.cells(name), dict.fromkeys(outcomes.failed, absent))
    return outcomes.columns.get(name)


def _array(cells: Sequence[Any] | None, kind: pa.DataType, count: int, *, absent: object = None) -> pa.Array:
    return _repeated(absent, kind, count) if cells is None else to_array(cells, kind)


@lru_cache(maxsize=64)
def _repeated(cell: object, kind: pa.DataType, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(cell, kind), count)


def _replaced(cells: Sequence[Any], others: Mapping[int, Any]) -> Sequence[Any]:
    """Return the cells, with others at some positions."""
    if not others:
        return cells
    replaced = [*cells]
    for at, cell in others.items():
        replaced[at] = cell
    return replaced


def _statuses(outcomes: Sequence[Outcome], errors: Mapping[int, TableError]) -> pa.Array:
    if not isinstance(outcomes, Results) or not (outcomes.kind is Record or outcomes.has_only("etag", "expires_ms")):
        return pa.array(list(map(status, outcomes)), pa.uint16())
    success = 200 if outcomes.kind is Record else 204
    if not errors:
        return _repeated(success, pa.uint16(), len(outcomes))
    failed = {at: 404 if error is RECORD_NOT_FOUND else status(error) for at, error in errors.items()}
    return pa.array(_replaced([success] * len(outcomes), failed), pa.uint16())


def _errors(outcomes: Sequence[Outcome]) -> Mapping[int, TableError]:
    """Return the errors by position. An absent record is one."""
    if not isinstance(outcomes, Results):
        errors = [RECORD_NOT_FOUND if outcome is None else outcome for outcome in outcomes]
        return {at: error for at, error in enumerate(errors) if isinstance(error, TableError)}
    if outcomes.kind is Written:
        return outcomes.failed
    return {**dict.fromkeys(outcomes.absent, RECORD_NOT_FOUND), **outcomes.failed}


def _partitions(lists: Sequence[Sequence[PartitionOutcome] | None], flags: Collection[str]) -> Pieces[pa.Array]:
    """Return a column with a list per answer: its answers by partition, or null if it has none."""
    flat = [part for one in lists if one is not None for part in one]
    columns = {
        "partition": pa.array([part.partition for part in flat], pa.int32()),
        **(yield from _columns([part.outcome for part in flat], flags)),
    }
    each = pa.StructArray.from_arrays([*columns.values()], names=[*columns])
    ends = list(accumulate((len(one or ()) for one in lists), initial=0))
    starts = [None if one is None else start for one, start in zip(lists, ends, strict=False)]
    return pa.ListArray.from_arrays(pa.array([*starts, ends[-1]], pa.int32()), each)
