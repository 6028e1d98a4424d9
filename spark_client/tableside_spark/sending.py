"""Writes, as they run on an executor: batches of operations in, rows that say what became of them out."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tableside_spark.batching import ChunkSize, chunks
from tableside_spark.connection import Connection, shared_client
from tableside_spark.errors import TableError
from tableside_spark.keys import key_column
from tableside_spark.window import in_order

ROWS = "__rows"
"""How many of the caller's rows an operation stands for."""
PROBLEM = "__problem"
"""Why an operation must not be sent, or null."""
CODE = "__code"
DETAIL = "__detail"
COUNTS = ("operations", "sent", "applied", "replayed", "failed", "dropped", "retried")
"""The counts of an outcome row, in rows of the caller's frame but for the operations."""


def internal(name: str) -> str:
    """The name of one of our own columns beside the caller's."""
    return f"__{name}"


@dataclass(frozen=True, slots=True)
class Sending:
    """One write: where to, under which token, how much at once, and whether a failure ends it.

    The incoming batches hold the key columns, `ROWS`, `PROBLEM` and the documents (JSON text), one row per
    operation. The outgoing ones hold `COUNTS`, then the key columns, `ROWS`, the documents, `CODE` and
    `DETAIL`: a row of counts per chunk, and a row without counts per failure. The names of all but the key
    columns are `internal`, so that a key column may have any name.
    """

    connection: Connection
    table: str
    op: str
    key_columns: tuple[str, ...]
    key_names: tuple[str, ...]
    documents: tuple[str, ...]
    writer: str | None
    ttl_s: float | None
    at_least_once: bool
    stop_at_failure: bool
    size: ChunkSize
    window: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Send every operation; with `stop_at_failure`, none after the first failure has been seen."""
        failing: list[bool] = []
        return in_order(chunks(batches, self.size), partial(self._outcome, failing), self.window)

    def _outcome(self, failing: list[bool], chunk: pa.RecordBatch) -> pa.RecordBatch:
        if failing:
            return self._report(chunk.slice(0, 0), [], {"dropped": _total(chunk.column(ROWS))})
        answered = self._answered(chunk)
        if self.stop_at_failure and answered[CODE].null_count < len(answered):
            failing.append(True)
        return self._counted(answered)

    def _answered(self, chunk: pa.RecordBatch) -> pa.Table:
        """The chunk with `CODE`, `DETAIL`, what else is counted beside each operation."""
        problems = chunk.column(PROBLEM)
        if problems.null_count == len(problems):
            return self._sent(pa.Table.from_batches([chunk]))
        good = pa.Table.from_batches([chunk.filter(pc.is_null(problems))])
        bad = pa.Table.from_batches([chunk.filter(pc.is_valid(problems))])
        refused = _beside(bad, pa.repeat("invalid_operation", len(bad)), bad[PROBLEM], sent=False)
        return pa.concat_tables([self._sent(good), refused]) if len(good) else refused

    def _sent(self, operations: pa.Table) -> pa.Table:
        columns = {name: operations[internal(name)] for name in self.documents}
        if self.writer is not None:
            columns["sequence"] = pa.repeat(pa.scalar(0, pa.int64()), len(operations))
        if self.ttl_s is not None:
            columns["ttl_s"] = pa.repeat(pa.scalar(self.ttl_s, pa.float64()), len(operations))
        keys = key_column([operations[name].combine_chunks() for name in self.key_columns], self.key_names)
        try:
            answer = shared_client(self.connection).batch(
                self.table,
                pa.table({"key": keys, **columns}),
                op=self.op,
                writer=self.writer,
                at_least_once=self.at_least_once,
            )
        except TableError as error:
            count = len(operations)
            return _beside(operations, pa.repeat(error.code, count), pa.repeat(error.detail, count), sent=True)
        replayed = pc.fill_null(answer["replayed"], False)
        return _beside(
            operations, answer["code"], answer["detail"], sent=True, replayed=replayed, retries=answer["retries"]
        )

    def _counted(self, answered: pa.Table) -> pa.RecordBatch:
        rows, ok = answered[ROWS], pc.is_null(answered[CODE])
        sent = answered["__sent"]
        counts = {
            "operations": _total(sent.cast(pa.int64())),
            "sent": _total(rows, sent),
            "applied": _total(rows, pc.and_(ok, pc.invert(answered["__replayed"]))),
            "replayed": _total(rows, pc.and_(ok, answered["__replayed"])),
            "failed": _total(rows, pc.invert(ok)),
            "retried": _total(rows, pc.greater(answered["__retries"], 0)),
        }
        failures = answered.filter(pc.invert(ok))
        return self._report(failures, [failures[CODE], failures[DETAIL]], counts)

    def _report(
        self, failures: pa.Table | pa.RecordBatch, outcome: Sequence[pa.ChunkedArray], counts: dict[str, int]
    ) -> pa.RecordBatch:
        """One row of counts, followed by the failures."""
        names = [*self.key_columns, ROWS, *map(internal, self.documents)]
        types = [failures.schema.field(name).type for name in names]
        columns: list[Any] = [_first_then_zeros(counts.get(name, 0), len(failures)) for name in COUNTS]
        columns += [_null_then(failures.column(name), kind) for name, kind in zip(names, types, strict=True)]
        columns += [_null_then(column, pa.string()) for column in outcome or [None, None]]
        schema = pa.schema(
            [
                *((internal(name), pa.int64()) for name in COUNTS),
                *zip(names, types, strict=True),
                (CODE, pa.string()),
                (DETAIL, pa.string()),
            ]
        )
        return pa.RecordBatch.from_arrays(columns, schema=schema)


def _beside(
    operations: pa.Table, code: Any, detail: Any, *, sent: bool, replayed: Any = None, retries: Any = None
) -> pa.Table:
    count = len(operations)
    outcome = {
        CODE: code,
        DETAIL: detail,
        "__replayed": pa.repeat(False, count) if replayed is None else replayed,
        "__retries": pa.repeat(pa.scalar(0, pa.uint16()), count) if retries is None else retries,
        "__sent": pa.repeat(sent, count),
    }
    for name, column in outcome.items():
        operations = operations.append_column(name, column)
    return operations


def _total(rows: Any, mask: Any = None) -> int:
    return int(pc.sum(rows if mask is None else rows.filter(mask)).as_py() or 0)


def _first_then_zeros(first: int, zeros: int) -> pa.Array:
    return pa.array([first, *([0] * zeros)], pa.int64())


def _null_then(column: pa.ChunkedArray | pa.Array | None, kind: pa.DataType) -> pa.Array:
    nothing = pa.nulls(1, kind)
    if column is None:
        return nothing
    parts = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    return pa.concat_arrays([nothing, *(part.cast(kind) for part in parts)])
