"""Run a write: executors send the operations, and the driver sums up the outcomes and handles failed rows."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from pyspark.sql import Column, DataFrame, Window, functions as F
from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType

from tableside_client.generations import require_records
from tableside_client.table_schema import ServiceLimits
from tableside_spark.executor.operation_batch import LATER_PARTS, PARTITION, PROBLEM, ROWS, Token, internal
from tableside_spark.executor.task_client import Connection, Target, shared_client
from tableside_spark.executor.write_task import CODE, COUNTS, DETAIL, INVALID_OPERATION, RETRIABLE, WriteSpec, WriteTask
from tableside_spark.plan.concurrency import divide_in_flight
from tableside_spark.plan.frames import map_arrow, quoted
from tableside_spark.plan.rows import PreparedRows
from tableside_spark.write.summary import TableWriteError, WriteSummary, WriteTotals, failure_groups, rerun_advice

REQUEST_CODES = (
    "unauthenticated", "forbidden", "table_not_found", "unsupported", "tls_refused", "unexpected_answer",
    "generation_not_found", "generation_sealed",
)  # fmt: skip
"""The codes of failures that are not caused by a row. They fail a write like temporary failures do."""

REPORT_MIN_S = 1.0
"""Shorter waits of all tasks are not logged."""

log = logging.getLogger(__name__)

OUTCOME_COLUMNS = ("rows", "code", "detail", "retriable")
"""The columns after the key and the documents in the DataFrame of failed rows."""


@runtime_checkable
class DeadLetterTable(Protocol):
    """The interface of a `Table` that stores dead letters."""

    def put(
        self, frame: DataFrame, key: str, /, *, value: str, token: tuple[str, int] | None, at_least_once: bool
    ) -> Any:
        """Store one record per key."""


OnError: TypeAlias = Literal["fail", "collect"] | Callable[[DataFrame, int | None], None] | DeadLetterTable
"""The reaction to failures: fail, collect, call a function with the micro-batch's number, or store dead letters."""


@dataclass(frozen=True, slots=True)
class WriteJob:
    """A write without operations and token. `keys` are the key columns. `harmless` rows may be applied again."""

    target: Target
    totals: WriteTotals
    limits: ServiceLimits
    spec: WriteSpec
    keys: tuple[str, ...]
    harmless: bool
    on_error: OnError


@dataclass(frozen=True, slots=True)
class WriteRun:
    """One run of a write job. `origin` is the query and its micro-batch, or the token, for dead letters.

    `is_repeatable` means that another run of the same write changes nothing that this run has applied.
    """

    token: Token | None
    origin: Token | None
    batch_id: int | None = None
    is_repeatable: bool = True


def run(job: WriteJob, prepared: PreparedRows, this: WriteRun) -> WriteSummary:
    """Send the operations, and return the summary. Raises `TableWriteError` for failures that are not handled."""
    started_s = time.monotonic()
    assigned = PreparedRows(prepared.grouping.assign(prepared.rows), prepared.grouping)
    with rerun_advice(is_repeatable=this.is_repeatable):
        if job.on_error == "fail":
            operations = assigned.grouping.operations(assigned.rows)
            found = [row.asDict() for row in _outcomes(job, operations, this.token, shown=job.keys).collect()]
            counts = [sum(row[internal(name)] or 0 for row in found) for name in COUNTS]
            summary = _summary(job, counts, this, started_s)
            if summary.failed:
                groups = failure_groups(found, job.keys)
                raise TableWriteError(job.spec.table, groups, summary, is_repeatable=this.is_repeatable)
            return summary
        if not prepared.grouping.identity:
            return _run_with_failures(job, assigned, this, started_s)
        # The rows of a failed operation are read again. The cache ensures that they are the same rows.
        cached = assigned.rows.persist()
        try:
            return _run_with_failures(job, PreparedRows(cached, assigned.grouping), this, started_s)
        finally:
            cached.unpersist()


def skip(job: WriteJob, prepared: PreparedRows) -> WriteSummary:
    """Return the summary of a run that had finished before, without reading or sending its rows."""
    summary = WriteSummary(finished_before=True)
    if job.on_error != "collect":
        return summary
    assigned = PreparedRows(prepared.grouping.assign(prepared.rows), prepared.grouping)
    return replace(summary, failures=_empty(_failed_rows(job, assigned, _shown_outcomes(job, assigned, None))))


def _run_with_failures(job: WriteJob, assigned: PreparedRows, this: WriteRun, started_s: float) -> WriteSummary:
    """Run and handle failures. The outcomes are checkpointed first, so that reading them does not send them again."""
    outcomes = _shown_outcomes(job, assigned, this.token).localCheckpoint(eager=True)
    sums = outcomes.agg(*[F.coalesce(F.sum(internal(name)), F.lit(0)).alias(name) for name in COUNTS]).collect()[0]
    summary = _summary(job, list(sums), this, started_s)
    failed = _failed_rows(job, assigned, outcomes)
    if job.on_error == "collect":
        # The failed rows must not depend on the rows of the write.
        return replace(summary, failures=failed.localCheckpoint(eager=True) if summary.failed else _empty(failed))
    if summary.failed:
        # If a failure is not caused by its row, the write is repeated as a whole, and there are no dead letters.
        temporary = outcomes.where(F.col(RETRIABLE) | F.col(CODE).isin(*REQUEST_CODES))
        first = [F.first(quoted(key)).alias(key) for key in job.keys]
        if found := temporary.groupBy(CODE, DETAIL).agg(F.sum(ROWS).alias(ROWS), *first).collect():
            groups = failure_groups([row.asDict() for row in found], job.keys)
            raise TableWriteError(job.spec.table, groups, summary, is_repeatable=this.is_repeatable)
        if callable(job.on_error):
            job.on_error(failed.drop("retriable"), this.batch_id)
        elif not isinstance(job.on_error, str):
            _put_dead_letters(job.on_error, failed, job, this)
    return summary


def _shown_outcomes(job: WriteJob, assigned: PreparedRows, token: Token | None) -> DataFrame:
    operations = assigned.grouping.operations(assigned.rows)
    needed = (*job.keys, PARTITION, *(assigned.grouping.identity or map(internal, job.spec.documents)))
    return _outcomes(job, operations, token, shown=[name for name in operations.columns if name in needed])


def _empty(frame: DataFrame) -> DataFrame:
    return frame.sparkSession.createDataFrame([], frame.schema)


def _outcomes(job: WriteJob, operations: DataFrame, token: Token | None, *, shown: Sequence[str]) -> DataFrame:
    source, divided = divide_in_flight(operations, job.limits, job.target)
    stop_at_failure = job.on_error == "fail"
    task = WriteTask(job.spec, tuple(shown), token, stop_at_failure, divided.chunk, divided.window)
    counts = [StructField(internal(name), LongType()) for name in COUNTS]
    columns = [StructField(name, operations.schema[name].dataType) for name in shown]
    reasons = [StructField(name, StringType()) for name in (CODE, DETAIL)]
    outcome = [StructField(ROWS, LongType()), *reasons, StructField(RETRIABLE, BooleanType())]
    return map_arrow(source, task, StructType([*counts, *columns, *outcome]))


def _summary(job: WriteJob, counts: Sequence[int], this: WriteRun, started_s: float) -> WriteSummary:
    numbers: dict[str, Any] = dict(zip(COUNTS, counts, strict=True))
    waited_s, seconds = numbers.pop("waited_ms") / 1000, time.monotonic() - started_s
    spec = job.spec
    summary = WriteSummary(**numbers, waited_s=waited_s, seconds=seconds, batch_id=this.batch_id)
    job.totals.add(summary)
    if summary.replayed:
        part = "" if this.batch_id is None else f"micro-batch {this.batch_id}: "
        counts = (summary.replayed, summary.sent)
        ignored = "ignored: applied before with this token, or with a later one of its writer"
        log.warning("table %s: %s%d of %d rows were %s", spec.table, part, *counts, ignored)
    if waited_s >= REPORT_MIN_S:
        log.warning("table %s: tasks of the %s waited %.1f s for retries", spec.table, spec.op, waited_s)
    return summary


def _failed_rows(job: WriteJob, assigned: PreparedRows, outcomes: DataFrame) -> DataFrame:
    """Return a row per failed row: key, documents and reason."""
    failed, grouping = outcomes.where(F.col(CODE).isNotNull()), assigned.grouping
    if grouping.identity:
        failed = _rows_of_operations(grouping.with_text(assigned.rows), failed, grouping.identity)
    partition = [F.col(PARTITION).alias("partition")] if PARTITION in failed.columns else []
    return failed.select(
        *map(quoted, job.keys),
        *partition,
        *[F.col(internal(name)).alias(name) for name in job.spec.documents],
        F.lit(1).cast("long").alias("rows"),
        F.col(CODE).alias("code"),
        F.col(DETAIL).alias("detail"),
        F.col(RETRIABLE).alias("retriable"),
    )


def _rows_of_operations(rows: DataFrame, failed: DataFrame, identity: Sequence[str]) -> DataFrame:
    """Return the rows with a problem, and the rows of failed operations."""
    sent = failed.where(F.col(LATER_PARTS) >= 0).select(*map(quoted, identity), *map(F.col, (CODE, DETAIL, RETRIABLE)))
    refused = rows.where(F.col(PROBLEM).isNull()).join(sent, list(identity))
    reason: dict[str, Column] = {CODE: F.lit(INVALID_OPERATION), DETAIL: F.col(PROBLEM), RETRIABLE: F.lit(False)}
    return refused.unionByName(rows.where(F.col(PROBLEM).isNotNull()).withColumns(reason))


LETTER_TEXT_CHARACTERS_MAX = 30_000
"""The maximum length of each text in a dead letter.

Key, update, default and detail together fit a record of every store, and 1 MiB even if JSON escapes each character.
"""


def _put_dead_letters(dead_letters: DeadLetterTable, failed: DataFrame, job: WriteJob, this: WriteRun) -> None:
    """Store failed rows as dead letters, once, even if the write is repeated.

    The key is a digest of the row and its origin, and a number that distinguishes equal rows.
    """
    documents = [name for name in failed.columns if name not in (*job.keys, *OUTCOME_COLUMNS)]
    writer, sequence = this.origin or (None, None)
    row: dict[str, Column] = {
        "table": F.lit(job.spec.table),
        "op": F.lit(job.spec.op),
        "key": F.to_json(F.struct(*map(quoted, job.keys)), {"ignoreNullFields": "false"}),
        **{name: F.col(name) for name in documents},
        "writer": F.lit(writer).cast("string"),
        "sequence": F.lit(sequence).cast("long"),
    }
    outcome = {name: F.col(name) for name in ("rows", "code", "detail")}
    digest = F.sha2(F.to_json(_struct(row), {"ignoreNullFields": "false"}), 256)
    texts = [name for name in ("key", "detail", *documents) if name != "partition"]
    members = row | outcome
    too_long = [F.coalesce(F.length(members[name]) > LETTER_TEXT_CHARACTERS_MAX, F.lit(False)) for name in texts]
    members |= {name: F.substring(members[name], 1, LETTER_TEXT_CHARACTERS_MAX) for name in texts}
    truncated = F.array_contains(F.array(*too_long), True)
    letter = _struct(members | {"truncated": truncated, "time": F.current_timestamp()})
    letters = failed.select(digest.alias("digest"), letter.alias("letter"))
    number = F.row_number().over(Window.partitionBy("digest").orderBy("letter.code", "letter.detail"))
    numbered = letters.select(F.concat_ws("-", "digest", number).alias("id"), "letter")
    dead_letters.put(numbered, "id", value="letter", token=this.token, at_least_once=not this.token)


def _struct(members: dict[str, Column]) -> Column:
    return F.struct(*[column.alias(name) for name, column in members.items()])


GONE = "the service removed the new generation: another one was activated, or it was idle for generations_idle_s"


def replace_records(
    connection: Connection,
    table: str,
    keys: Sequence[str],
    put: Callable[[str], WriteSummary],
    *,
    allow_empty: bool,
    note: str | None,
) -> WriteSummary:
    """Put rows in a new generation, and activate it. A failure, also a collected temporary one, removes it."""
    with shared_client(connection).table(table).replacement(note) as new:
        try:
            summary = put(new.name)
            _require_permanent(new.name, keys, summary)
        except TableWriteError as error:
            if error.code in ("generation_not_found", "generation_sealed"):
                error.add_note(GONE)
            raise
        require_records(table, summary.applied + summary.superseded, allow_empty=allow_empty)
    return summary


def _require_permanent(table: str, keys: Sequence[str], summary: WriteSummary) -> None:
    """Raise if a collected failure is not caused by its row: the table would lack a row that is valid."""
    if summary.failures is None or not summary.failed:
        return
    temporary = summary.failures.where(F.col("retriable") | F.col("code").isin(*REQUEST_CODES)).limit(1).collect()
    if temporary:
        [row] = temporary
        found = {CODE: row["code"], DETAIL: row["detail"], ROWS: summary.failed, **{key: row[key] for key in keys}}
        raise TableWriteError(table, failure_groups([found], keys), summary)
