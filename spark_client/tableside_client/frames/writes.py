"""`load` of a frame and `update_frame` as plans."""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tableside_client.arrow_table import ArrowCalls, ChunkSize, chunks
from tableside_client.calls import Call
from tableside_client.concurrency import Plan
from tableside_client.errors import FrameWriteError, TableNotFound, TablesideError, ends_load, error
from tableside_client.frames.documents import RowDocuments, object_pieces, update_pieces
from tableside_client.frames.kinds import FrameKeys, FrameKind, check_columns, key_names, kind_of
from tableside_client.json_batch import WRITER_CHARACTERS_MAX
from tableside_client.key_columns import distinct_keys, invalid_utf8, orders
from tableside_client.operators import Column
from tableside_client.paths import given
from tableside_client.table_calls import TableCalls, Update
from tableside_client.table_schema import TableSchema

PART_ROWS_MAX = 2_048
PART_BYTES_MAX = 2**20
"""The maximum size of the updates of one operation. A single update may exceed it."""
PART_NAMES_MAX = 50_000
"""The maximum number of columns in the updates of one operation: the service limits the paths of an update."""


def load(calls: TableCalls[Any], frame: Any, key: str | Sequence[str], order: str | None) -> Plan[int]:
    """Store one record for each key, as `Table.load` describes it."""
    kind = kind_of(frame)
    names = kind.names(frame)
    keys = key_names(key, names)
    check_columns(names, [] if order is None else [order])
    table_schema = yield from _table_schema(calls)
    rows = FrameRows(calls, kind, frame, keys, table_schema)
    members = {name: Column(name) for name in names if name not in keys}
    texts = rows.documents.texts(list(object_pieces(members)))
    sequence = None if order is None else _orders(rows.documents, order)
    groups = rows.groups(sequence)
    last = [group[-1] for group in groups]
    columns: dict[str, Any] = {
        "key": rows.keys.take(last),
        "value": pa.array([texts[row] for row in last], pa.string()),
    }
    if sequence is not None:
        columns["order"] = sequence.take(pa.array(last, pa.int64()))
    yield from rows.send(pa.table(columns), groups, "put")
    return rows.written()


def update_frame(
    calls: TableCalls[Any],
    frame: Any,
    key: str | Sequence[str],
    update: Update,
    default: Mapping[str, Any] | None,
    token: str | None,
) -> Plan[int]:
    """Apply one update per key, as `Table.update_frame` describes it. A key with many rows has several, in order."""
    kind = kind_of(frame)
    keys = key_names(key, kind.names(frame))
    pieces, start = list(update_pieces(update)), None if default is None else list(object_pieces(default))
    if default is not None and not isinstance(default, Mapping):
        raise TypeError(f"a default must be a mapping, not {type(default).__name__}")
    if token is not None and (not isinstance(token, str) or not 1 <= len(token) <= WRITER_CHARACTERS_MAX):
        raise ValueError(f"token must be a text of 1 to {WRITER_CHARACTERS_MAX} characters")
    writer = token or f"frame-{uuid.uuid4().hex}"
    table_schema = yield from _table_schema(calls)
    rows = FrameRows(calls, kind, frame, keys, table_schema, is_repeatable=token is not None)
    updates = rows.documents.texts(pieces)
    defaults = None if start is None else rows.documents.texts(start)
    has_token = table_schema.tokens or token is not None
    size = min(PART_ROWS_MAX, PART_NAMES_MAX // max(1, len(pieces)))
    for number, groups in enumerate(_rounds(rows.groups(None), updates, size), start=1):
        groups = rows.without_failed_keys(groups)
        first = [group[0] for group in groups]
        columns: dict[str, Any] = {"key": rows.keys.take(first)}
        columns["update"] = pa.array(
            [f"[{','.join([updates[row] for row in group])}]" for group in groups], pa.string()
        )
        if defaults is not None:
            columns["default"] = pa.array([defaults[row] for row in first], pa.string())
        if has_token:
            columns["sequence"] = pa.repeat(pa.scalar(number, pa.int64()), len(groups))
        yield from rows.send(pa.table(columns), groups, "update", writer if has_token else None)
    return rows.written()


def _table_schema(calls: TableCalls[Any]) -> Plan[TableSchema]:
    """Return the schema of the table, or the defaults if it does not exist yet: the first write may create it."""
    [description] = yield [_description(calls)]
    return TableSchema() if description is None else TableSchema.from_description(description)


def _description(calls: TableCalls[Any]) -> Call[dict[str, Any] | None]:
    try:
        return (yield from calls.describe())
    except TableNotFound:
        return None


def _orders(documents: RowDocuments, name: str) -> pa.Array:
    column = documents.columns[name]
    if not (pa.types.is_integer(column.type) or pa.types.is_timestamp(column.type) or pa.types.is_date(column.type)):
        raise ValueError(f"order is {column.type}: it must be an integer, a timestamp or a date")
    documents.add_nulls(column, f"column {name} of order is null")
    return orders(column)


def _rounds(groups: Sequence[list[int]], texts: Sequence[str], rows_max: int) -> Iterator[list[list[int]]]:
    """Yield the first part of each group of rows, then the second parts, and so on."""
    parts = [list(_parts(group, texts, rows_max)) for group in groups]
    for number in range(max(map(len, parts), default=0)):
        yield [part[number] for part in parts if number < len(part)]


def _parts(group: Sequence[int], texts: Sequence[str], rows_max: int) -> Iterator[list[int]]:
    part: list[int] = []
    size_bytes = 0
    for row in group:
        size_bytes += len(texts[row].encode())
        if part and (len(part) == rows_max or size_bytes > PART_BYTES_MAX):
            yield part
            part, size_bytes = [], len(texts[row].encode())
        part.append(row)
    yield part


class FrameRows:
    """The rows of a frame to write, and what became of them. `is_repeatable` means that the caller gave a token."""

    def __init__(
        self,
        calls: TableCalls[Any],
        kind: FrameKind,
        frame: Any,
        keys: Sequence[str],
        table_schema: TableSchema,
        *,
        is_repeatable: bool = True,
    ) -> None:
        self._calls = ArrowCalls(calls.name, calls.settings)
        self._limits = table_schema.limits
        self._is_repeatable = is_repeatable
        self.keys = FrameKeys.of_frame(kind, frame, keys, table_schema)
        columns = kind.columns(frame, kind.names(frame))
        self.documents = RowDocuments(columns, [None] * len(next(iter(columns.values()))))
        self._failures: dict[int, TablesideError] = {}
        self._failed_keys: dict[Any, TablesideError] = {}
        self._written = self._unsent = 0
        self._has_answer = self._is_stopped = False
        for name, column in self.keys.columns.items():
            self.documents.add_nulls(column, f"key column {name} is null")
            if (invalid := invalid_utf8(column)) is not None:
                for row in pc.indices_nonzero(invalid).to_pylist():
                    self.documents.add_problem(row, f"key column {name} is not valid UTF-8")

    def groups(self, sequence: pa.Array | None) -> list[list[int]]:
        """Return the rows of each key that can be sent, in the order of the frame or of their sequence."""
        valid = [row for row, problem in enumerate(self.documents.problems) if problem is None]
        rows = pa.array(valid, pa.int64())
        keys = distinct_keys([column.take(rows) for column in self.keys.columns.values()], self.keys.fields)
        pairs = list(zip(valid, keys.positions.to_pylist(), strict=True))
        if sequence is not None:
            values = sequence.to_pylist()
            pairs.sort(key=lambda pair: values[pair[0]])
        groups: list[list[int]] = [[] for _ in range(len(keys.keys))]
        for row, key in pairs:
            groups[key].append(row)
        return groups

    def without_failed_keys(self, groups: list[list[int]]) -> list[list[int]]:
        """Return the groups of keys without a failure so far. The others fail for the same reason."""
        kept = []
        for group in groups:
            failure = self._failed_keys.get(self.keys.key(group[0])) if self._failed_keys else None
            if failure is None:
                kept.append(group)
            else:
                self._failures.update(dict.fromkeys(group, failure))
        return kept

    def send(self, operations: pa.Table, groups: Sequence[list[int]], op: str, writer: str | None = None) -> Plan[None]:
        """Send operations. Each is made from the rows of one of the groups."""
        size = ChunkSize()
        size = ChunkSize(
            min(size.rows_max, self._limits.operations_max), min(size.bytes_max, self._limits.body_bytes_max)
        )
        pieces = list(chunks(operations.combine_chunks().to_batches(), size))
        results = yield (self._send_piece(piece, op, writer) for piece in pieces)
        start = 0
        for piece, failed in zip(pieces, results, strict=True):
            for position, group in enumerate(groups[start : start + len(piece)]):
                if failed is None:
                    self._unsent += len(group)
                elif position in failed:
                    self._failures.update(dict.fromkeys(group, failed[position]))
                    self._failed_keys[self.keys.key(group[0])] = failed[position]
                else:
                    self._written += len(group)
            start += len(piece)

    def _send_piece(self, piece: pa.RecordBatch, op: str, writer: str | None) -> Call[dict[int, TablesideError] | None]:
        """Send operations in one request, and return the failed ones by position. None if they are not sent."""
        if self._is_stopped:
            return None
        try:
            outcomes = yield from self._calls.batch(piece, **given(op=op, writer=writer))
        except TablesideError as failure:
            if not self._has_answer:
                raise
            failed = dict.fromkeys(range(len(piece)), failure)
        else:
            failed = self._failed(outcomes)
        self._has_answer = True
        self._is_stopped = self._is_stopped or ends_load(failed.items())
        return failed

    def _failed(self, outcomes: pa.Table) -> dict[int, TablesideError]:
        at = pc.indices_nonzero(pc.is_valid(outcomes["code"]))
        names = ["code", "status", "detail", "retriable", "applied"]
        found = outcomes.select(names).take(at).to_pylist() if len(at) else []
        return {
            position: error(self._calls.name, retriable=bool(row.pop("retriable")), **row)
            for position, row in zip(at.to_pylist(), found, strict=True)
        }

    def written(self) -> int:
        """Return the number of rows that were written. Raises `FrameWriteError` if some were not."""
        for row, problem in enumerate(self.documents.problems):
            if problem is not None:
                self._failures[row] = error(self._calls.name, "invalid_operation", 422, problem)
        if self._failures:
            failures = [(self.keys.key(row), self._failures[row]) for row in sorted(self._failures)]
            raise FrameWriteError(failures, self._written, self._unsent, is_repeatable=self._is_repeatable)
        return self._written
