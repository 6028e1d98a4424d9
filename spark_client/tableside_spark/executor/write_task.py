"""The executor side of a write: sends operations and reports their outcomes."""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tableside_client.arrow_table import ChunkSize, chunks
from tableside_client.errors import TableError
from tableside_spark.executor.operation_batch import (
    DELETE,
    NO_PARTITION,
    PARTITION,
    PROBLEM,
    RESET,
    ROWS,
    KeyColumns,
    StoppedKeys,
    Token,
    build_batch,
    internal,
    part_token,
    problems,
    rounds,
)
from tableside_spark.executor.task_client import Connection, TaskClient

CODE = "__code"
DETAIL = "__detail"
RETRIABLE = "__retriable"
"""True if a retry of the failed operation may succeed."""
INVALID_OPERATION = "invalid_operation"
"""The code of operations that are not sent because they have a problem."""
COUNTS = (
    "operations", "sent", "applied", "replayed", "superseded", "failed", "dropped", "unsent", "retried", "waited_ms",
)  # fmt: skip
"""The counts of an outcome row. Except `operations` and `waited_ms`, they count rows of the DataFrame."""

_REPLAYED, _SUPERSEDED, _RETRIES, _SENT, _AT = map(
    internal, ("is_replayed", "is_superseded", "retries", "is_sent", "at")
)


@dataclass(frozen=True, slots=True)
class WriteSpec:
    """The parameters of a write on driver and executors. `documents` are the columns of JSON text."""

    connection: Connection
    table: str
    op: str
    keys: KeyColumns
    documents: tuple[str, ...]
    at_least_once: bool


@dataclass(frozen=True, slots=True)
class WriteTask:
    """Sends the operations of a Spark task.

    Input batches contain the key columns, `ROWS`, `PROBLEM`, `LATER_PARTS`, the documents (JSON text), and optionally
    `DELETE`, `PARTITION`, `SEQUENCE` and `EXPIRY`, with one row per operation. The parts of a key are in order. Output
    batches contain `COUNTS`, the columns `shown` of the input, `ROWS`, `CODE`, `DETAIL` and `RETRIABLE`: one row of
    counts per chunk, and one row per failure. With `stop_at_failure`, equal failures share a row.
    """

    spec: WriteSpec
    shown: tuple[str, ...]
    token: Token | None
    stop_at_failure: bool
    chunk: ChunkSize
    window: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Send every operation. With `stop_at_failure`, send none after a failure has occurred."""
        client = TaskClient(self.spec.connection, self.spec.table, self.window)
        state = _TaskState(client, StoppedKeys(self.spec.keys.columns))
        for later_parts, pieces in rounds(batches):
            yield from client.map(chunks(pieces, self.chunk), partial(self._process_chunk, state, later_parts))

    def _process_chunk(self, state: "_TaskState", later_parts: int, chunk: pa.RecordBatch) -> pa.RecordBatch:
        operations = pa.Table.from_batches([chunk])
        if self.stop_at_failure and state.has_failed:
            return self._report(_not_sent(operations.slice(0, 0), None), {"unsent": _total(operations[ROWS])})
        found = problems(operations, self.spec.op, self.spec.keys, self.spec.documents)
        operations = operations.set_column(operations.schema.get_field_index(PROBLEM), PROBLEM, found)
        invalid, valid = _divide(operations, pc.is_valid(found))
        held, sendable = _divide(valid, state.stopped.mask(valid))
        parts = [_not_sent(invalid, invalid[PROBLEM])] if len(invalid) else []
        parts += [_with_outcome(held, *state.stopped.reasons(held), sent=False)] if len(held) else []
        if len(sendable):
            parts.append(self._send_after_resets(state.client, sendable, part_token(self.token, later_parts)))
        outcomes = pa.concat_tables(parts)
        failed = outcomes.filter(pc.is_valid(outcomes[CODE]))
        if len(failed):
            state.has_failed = True
        if later_parts:
            state.stopped.add(failed, CODE, DETAIL, RETRIABLE)
        return self._report(failed, _counts(outcomes) | {"waited_ms": state.client.take_waited_ms()})

    def _send_after_resets(self, client: TaskClient, operations: pa.Table, token: Token | None) -> pa.Table:
        """Send operations, after the deletes that precede updates. If a delete fails, its update is not sent."""
        resets = None
        if DELETE in operations.column_names and self.spec.op == "update":
            resets = pc.and_(operations[DELETE], pc.is_valid(operations[internal("update")]))
        if resets is None or not pc.any(resets, min_count=0).as_py():
            return self._send(client, operations, self.spec.op, self.spec.documents, token)
        reset = None if self.token is None else Token(f"{self.token.writer}{RESET}", self.token.sequence)
        deleted = self._send(client, operations.filter(resets).drop_columns(DELETE), "delete", (), reset)
        names = [*operations.column_names, CODE, DETAIL, RETRIABLE, _REPLAYED, _SUPERSEDED, _RETRIES, _SENT]
        deleted = deleted.append_column(DELETE, pa.repeat(True, len(deleted))).select(names)
        is_deleted = pc.is_null(deleted[CODE])
        kept = [operations.filter(pc.invert(resets)), deleted.filter(is_deleted).select(operations.column_names)]
        rest = pa.concat_tables(kept)
        failed = deleted.filter(pc.invert(is_deleted))
        sent = [self._send(client, rest, self.spec.op, self.spec.documents, token)] if len(rest) else []
        return pa.concat_tables([*sent, failed])

    def _send(
        self, client: TaskClient, operations: pa.Table, op: str, documents: Sequence[str], token: Token | None
    ) -> pa.Table:
        spec = self.spec
        batch, one_op = build_batch(operations, op, spec.keys, documents, token, time.time())
        writer = None if token is None else token.writer
        try:
            response = client.batch(batch, op=one_op, writer=writer, at_least_once=spec.at_least_once)
        except TableError as error:
            return _with_outcome(operations, error.code, error.detail, error.retriable, sent=True)
        reason = (response["code"], response["detail"], response["retriable"])
        names = [name for name in ("replayed", "superseded") if name in response.column_names]
        flags = {name: pc.fill_null(response[name], False) for name in names}
        return _with_outcome(operations, *reason, sent=True, retries=response["retries"], **flags)

    def _report(self, failures: pa.Table, counts: dict[str, int]) -> pa.RecordBatch:
        names = [*self.shown, ROWS, CODE, DETAIL, RETRIABLE]
        if self.stop_at_failure:  # Equal failures become the first of them, with the sum of their rows.
            numbered = failures.append_column(_AT, pa.array(range(len(failures)), pa.int64()))
            alike = numbered.group_by([CODE, DETAIL, RETRIABLE]).aggregate([(_AT, "min"), (ROWS, "sum")])
            failures = failures.take(alike[f"{_AT}_min"])
            failures = failures.set_column(failures.schema.get_field_index(ROWS), ROWS, alike[f"{ROWS}_sum"])
        failures = failures.select(names)
        first = pa.table({internal(name): pa.array([counts.get(name, 0)], pa.int64()) for name in COUNTS})
        rows = pa.concat_tables([first, failures], promote_options="default")
        zeros = [pc.fill_null(rows[internal(name)], 0) for name in COUNTS]
        columns = [column.combine_chunks() for column in (*zeros, *rows.select(names).columns)]
        fields = [pa.field(name, column.type) for name, column in zip(rows.column_names, columns, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


@dataclass(slots=True)
class _TaskState:
    client: TaskClient
    stopped: StoppedKeys
    has_failed: bool = False


def _divide(operations: pa.Table, mask: pa.Array | pa.ChunkedArray) -> tuple[pa.Table, pa.Table]:
    if not pc.any(mask, min_count=0).as_py():
        return operations.slice(0, 0), operations
    return operations.filter(mask), operations.filter(pc.invert(mask))


def _counts(outcomes: pa.Table) -> dict[str, int]:
    rows, ok, sent = outcomes[ROWS], pc.is_null(outcomes[CODE]), outcomes[_SENT]
    replayed, superseded = outcomes[_REPLAYED], outcomes[_SUPERSEDED]
    no_partition = pa.repeat(False, len(outcomes))
    if PARTITION in outcomes.column_names:
        no_partition = pc.fill_null(pc.equal(outcomes[PARTITION], NO_PARTITION), False)
    dropped = pc.and_(ok, no_partition)
    done = pc.and_(ok, pc.invert(dropped))
    return {
        "operations": _total(sent.cast(pa.int64())),
        "sent": _total(rows, sent),
        "applied": _total(rows, pc.and_(done, pc.invert(pc.or_(replayed, superseded)))),
        "replayed": _total(rows, pc.and_(done, replayed)),
        "superseded": _total(rows, pc.and_(done, superseded)),
        "failed": _total(rows, pc.invert(ok)),
        "dropped": _total(rows, dropped),
        "retried": _total(rows, pc.greater(outcomes[_RETRIES], 0)),
    }


def _not_sent(operations: pa.Table, details: pa.ChunkedArray | None) -> pa.Table:
    return _with_outcome(operations, INVALID_OPERATION, "" if details is None else details, False, sent=False)


def _with_outcome(
    operations: pa.Table,
    code: Any,
    detail: Any,
    retriable: Any,
    *,
    sent: bool,
    replayed: Any = False,
    superseded: Any = False,
    retries: Any = 0,
) -> pa.Table:
    outcome = {
        CODE: (code, pa.string()),
        DETAIL: (detail, pa.string()),
        RETRIABLE: (retriable, pa.bool_()),
        _REPLAYED: (replayed, pa.bool_()),
        _SUPERSEDED: (superseded, pa.bool_()),
        _RETRIES: (retries, pa.uint16()),
        _SENT: (sent, pa.bool_()),
    }
    for name, (given, kind) in outcome.items():  # a column, or the value of all rows
        is_column = isinstance(given, pa.Array | pa.ChunkedArray)
        column = given.cast(kind) if is_column else pa.repeat(pa.scalar(given, kind), len(operations))
        operations = operations.append_column(name, column)
    return operations


def _total(rows: Any, mask: Any = None) -> int:
    return int(pc.sum(rows if mask is None else rows.filter(mask)).as_py() or 0)
