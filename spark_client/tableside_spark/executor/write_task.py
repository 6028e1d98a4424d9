"""Writes, as they run on an executor: batches of operations in, rows that say what became of them out."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tableside_client.connection import Connection, shared_client
from tableside_client.errors import TableError
from tableside_spark.executor.chunks import ChunkSize, chunks
from tableside_spark.executor.operation_batch import (
    DELETE,
    NO_PARTITION,
    PARTITION,
    PROBLEM,
    RESET,
    ROWS,
    KeyColumns,
    Token,
    build_batch,
    internal,
    reset_mask,
)
from tableside_spark.executor.ordered_pool import map_ordered

CODE = "__code"
DETAIL = "__detail"
RETRIABLE = "__retriable"
"""Whether asking again may help a failed operation."""
COUNTS = ("operations", "sent", "applied", "replayed", "failed", "dropped", "unsent", "retried")
"""The counts of an outcome row, in rows of the caller's frame but for the operations."""

_REPLAYED, _RETRIES, _SENT = map(internal, ("is_replayed", "retries", "is_sent"))


@dataclass(frozen=True, slots=True)
class WriteSpec:
    """What a write does and where, as the driver and the executors both need it.

    `documents` are the columns of JSON text that a request has besides the key: `value`, or `update` and `default`.
    """

    connection: Connection
    table: str
    op: str
    keys: KeyColumns
    documents: tuple[str, ...]
    ttl_s: float | None
    at_least_once: bool
    chunk: ChunkSize


@dataclass(frozen=True, slots=True)
class WriteTask:
    """A write as a task runs it: under which token, how many requests at once, and whether a failure ends it.

    The incoming batches hold the key columns, `ROWS`, `PROBLEM`, the documents (JSON text), and where there are such
    `DELETE` and `PARTITION`, one row per operation. The outgoing ones hold `COUNTS`, then the columns `shown` of the
    incoming, `ROWS`, `CODE`, `DETAIL` and `RETRIABLE`: a row of counts per chunk, and a row without counts per
    failure, or, where nothing is `shown`, for all failures that are alike. The names of all but the key columns are
    `internal`, so that a key column may have any name.
    """

    spec: WriteSpec
    shown: tuple[str, ...]
    token: Token | None
    stop_at_failure: bool
    window: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Send every operation; with `stop_at_failure`, none after the first failure has been seen."""
        failing: list[bool] = []
        return map_ordered(chunks(batches, self.spec.chunk), partial(self._process_chunk, failing), self.window)

    def _process_chunk(self, failing: list[bool], chunk: pa.RecordBatch) -> pa.RecordBatch:
        operations = pa.Table.from_batches([chunk])
        if failing:
            return self._report(_not_sent(operations.slice(0, 0), None), {"unsent": _total(operations[ROWS])})
        answered = self._with_outcomes(operations)
        if self.stop_at_failure and answered[CODE].null_count < len(answered):
            failing.append(True)
        return self._report(answered.filter(pc.is_valid(answered[CODE])), _counts(answered))

    def _with_outcomes(self, operations: pa.Table) -> pa.Table:
        """The operations with `CODE`, `DETAIL`, and what else is counted beside each of them."""
        bad = pc.is_valid(operations[PROBLEM])
        if not pc.any(bad, min_count=0).as_py():
            return self._send_after_resets(operations)
        refused = operations.filter(bad)
        good = operations.filter(pc.invert(bad))
        outcomes = [_not_sent(refused, refused[PROBLEM])]
        return pa.concat_tables([self._send_after_resets(good), *outcomes]) if len(good) else outcomes[0]

    def _send_after_resets(self, operations: pa.Table) -> pa.Table:
        """What became of all, those first deleted that begin with a delete: if that fails, their update is not sent."""
        both = reset_mask(operations, self.spec.op)
        if both is None or not pc.any(both, min_count=0).as_py():
            return self._send(operations, self.spec.op, self.spec.documents, self.token)
        token = None if self.token is None else Token(f"{self.token.writer}{RESET}", self.token.sequence)
        deleted = self._send(operations.filter(both).drop_columns(DELETE), "delete", (), token)
        deleted = deleted.append_column(DELETE, pa.repeat(True, len(deleted))).select(_outcome_names(operations))
        gone = pc.is_null(deleted[CODE])
        rest = pa.concat_tables(
            [operations.filter(pc.invert(both)), deleted.filter(gone).select(operations.column_names)]
        )
        failed = deleted.filter(pc.invert(gone))
        sent = [self._send(rest, self.spec.op, self.spec.documents, self.token)] if len(rest) else []
        return pa.concat_tables([*sent, failed])

    def _send(self, operations: pa.Table, op: str, documents: Sequence[str], token: Token | None) -> pa.Table:
        spec = self.spec
        batch, one_op = build_batch(operations, op, spec.keys, documents, token, spec.ttl_s if op != "delete" else None)
        try:
            answer = shared_client(spec.connection).batch(
                spec.table,
                batch,
                op=one_op,
                writer=None if token is None else token.writer,
                at_least_once=spec.at_least_once,
            )
        except TableError as error:
            return _with_outcome(operations, error.code, error.detail, error.retriable, sent=True)
        return _with_outcome(
            operations,
            answer["code"],
            answer["detail"],
            answer["retriable"],
            sent=True,
            replayed=pc.fill_null(answer["replayed"], False),
            retries=answer["retries"],
        )

    def _report(self, failures: pa.Table, counts: dict[str, int]) -> pa.RecordBatch:
        """One row of counts, followed by the failures."""
        names = [*self.shown, ROWS, CODE, DETAIL, RETRIABLE]
        failures = failures.select(names) if self.shown else _merge_equal_failures(failures)
        zeros = [pa.array([counts.get(name, 0), *([0] * len(failures))], pa.int64()) for name in COUNTS]
        fields = [*(pa.field(internal(name), pa.int64()) for name in COUNTS), *map(failures.schema.field, names)]
        columns = [*zeros, *(_with_leading_null(failures.column(name)) for name in names)]
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema([field.with_nullable(True) for field in fields]))


def _counts(answered: pa.Table) -> dict[str, int]:
    rows, ok, sent, replayed = answered[ROWS], pc.is_null(answered[CODE]), answered[_SENT], answered[_REPLAYED]
    dropped = pc.and_(ok, _is_dropped(answered))
    done = pc.and_(ok, pc.invert(dropped))
    return {
        "operations": _total(sent.cast(pa.int64())),
        "sent": _total(rows, sent),
        "applied": _total(rows, pc.and_(done, pc.invert(replayed))),
        "replayed": _total(rows, pc.and_(done, replayed)),
        "failed": _total(rows, pc.invert(ok)),
        "dropped": _total(rows, dropped),
        "retried": _total(rows, pc.greater(answered[_RETRIES], 0)),
    }


def _is_dropped(answered: pa.Table) -> pa.Array | pa.ChunkedArray:
    if PARTITION not in answered.column_names:
        return pa.repeat(False, len(answered))
    return pc.fill_null(pc.equal(answered[PARTITION], NO_PARTITION), False)


def _not_sent(operations: pa.Table, details: pa.ChunkedArray | None) -> pa.Table:
    """The operations as failed without having been sent."""
    return _with_outcome(operations, "invalid_operation", "" if details is None else details, False, sent=False)


def _with_outcome(
    operations: pa.Table, code: Any, detail: Any, retriable: Any, *, sent: bool, replayed: Any = None, retries: Any = 0
) -> pa.Table:
    outcome = {
        CODE: (code, pa.string()),
        DETAIL: (detail, pa.string()),
        RETRIABLE: (retriable, pa.bool_()),
        _REPLAYED: (False if replayed is None else replayed, pa.bool_()),
        _RETRIES: (retries, pa.uint16()),
        _SENT: (sent, pa.bool_()),
    }
    for name, (column, kind) in outcome.items():
        operations = operations.append_column(name, _column(column, kind, len(operations)))
    return operations


def _column(given: Any, kind: pa.DataType, count: int) -> Any:
    """A column, of one value for all where that is given."""
    if isinstance(given, pa.Array | pa.ChunkedArray):
        return given.cast(kind)
    return pa.repeat(pa.scalar(given, kind), count)


def _outcome_names(operations: pa.Table) -> list[str]:
    return [*operations.column_names, CODE, DETAIL, RETRIABLE, _REPLAYED, _RETRIES, _SENT]


def _merge_equal_failures(failures: pa.Table) -> pa.Table:
    """Failures that are alike as one."""
    grouped = failures.group_by([CODE, DETAIL, RETRIABLE]).aggregate([(ROWS, "sum")])
    return grouped.rename_columns({f"{ROWS}_sum": ROWS})


def _total(rows: Any, mask: Any = None) -> int:
    return int(pc.sum(rows if mask is None else rows.filter(mask)).as_py() or 0)


def _with_leading_null(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays([pa.nulls(1, column.type), *column.chunks])
