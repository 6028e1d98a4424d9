"""Run a write: executors send the operations, and the driver sums up the outcomes."""

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere
from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType

from tableside_spark.executor.operation_batch import PARTITION, ROWS, Token, internal
from tableside_spark.executor.task_waits import REPORT_MIN_S
from tableside_spark.executor.write_task import CODE, COUNTS, DETAIL, RETRIABLE, WriteSpec, WriteTask
from tableside_spark.plan.frames import divide_in_flight, is_remote, map_arrow
from tableside_spark.write import failures
from tableside_spark.write.failures import OnError
from tableside_spark.write.summary import TableWriteError, WriteSummary, WriteTotals

_DESCRIPTION_PROPERTY = "spark.job.description"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WriteJob:
    """A write without its operations and its token: its parameters, its concurrency, and its reaction to failures.

    `keys` are the key columns with the DataFrame's names.
    """

    spec: WriteSpec
    keys: tuple[str, ...]
    on_error: OnError
    in_flight_max: int
    totals: WriteTotals


def run(job: WriteJob, operations: DataFrame, token: Token | None, batch_id: int | None = None) -> WriteSummary:
    """Send the operations, and return the summary. Raises `TableWriteError` for failures that are not handled."""
    started_s = time.monotonic()
    with _job_description(operations, job, batch_id):
        if job.on_error == "fail":
            return _run_or_fail(job, operations, token, batch_id, started_s)
        return _run_with_failures(job, operations, token, batch_id, started_s)


def _run_or_fail(
    job: WriteJob, operations: DataFrame, token: Token | None, batch_id: int | None, started_s: float
) -> WriteSummary:
    found = _outcomes(job, operations, token, shown=()).collect()
    summary = _summary(job, [sum(row[internal(name)] or 0 for row in found) for name in COUNTS], batch_id, started_s)
    if summary.failed:
        raise _most_frequent_failure(job.spec.table, [row for row in found if row[CODE] is not None], summary)
    return summary


def _run_with_failures(
    job: WriteJob, operations: DataFrame, token: Token | None, batch_id: int | None, started_s: float
) -> WriteSummary:
    """Run and handle failures. The outcomes are checkpointed first, so that reading them does not send them again."""
    shown = tuple(operations.columns)
    outcomes = _outcomes(job, operations, token, shown=shown).localCheckpoint(eager=True)
    sums = outcomes.agg(*[F.coalesce(F.sum(internal(name)), F.lit(0)).alias(name) for name in COUNTS]).collect()[0]
    summary = _summary(job, list(sums), batch_id, started_s)
    failed = failures.failed_operations(outcomes, job.keys, job.spec.documents)
    if job.on_error == "collect":
        return replace(summary, failures=failed)
    if summary.failed:
        _raise_retriable_failures(job.spec.table, failed, summary)
        _handle_failures(job, failed, token, batch_id)
    return summary


def _raise_retriable_failures(table: str, failed: DataFrame, summary: WriteSummary) -> None:
    """Raise if a failure is temporary: the write is repeated as a whole, and the rows are not dead letters."""
    temporary = failed.where("retriable").groupBy("code", "detail").agg(F.sum("rows").alias("rows"))
    found = temporary.orderBy(F.desc("rows")).limit(1).collect()
    if found:
        raise TableWriteError(table, found[0]["code"], found[0]["detail"] or "", int(found[0]["rows"]), summary)


def _handle_failures(job: WriteJob, failed: DataFrame, token: Token | None, batch_id: int | None) -> None:
    if callable(job.on_error):
        job.on_error(failed.drop("retriable"), batch_id)
    elif not isinstance(job.on_error, str):
        failures.put_dead_letters(job.on_error, failed, job.spec.table, job.spec.op, job.keys, token)


def _outcomes(job: WriteJob, operations: DataFrame, token: Token | None, *, shown: tuple[str, ...]) -> DataFrame:
    source, window = divide_in_flight(operations, job.in_flight_max)
    allowed = (*job.keys, PARTITION, *map(internal, job.spec.documents))
    shown = tuple(name for name in shown if name in allowed)
    task = WriteTask(job.spec, shown, token, stop_at_failure=job.on_error == "fail", window=window)
    schema = StructType(
        [
            *(StructField(internal(name), LongType()) for name in COUNTS),
            *(StructField(name, operations.schema[name].dataType) for name in shown),
            StructField(ROWS, LongType()),
            StructField(CODE, StringType()),
            StructField(DETAIL, StringType()),
            StructField(RETRIABLE, BooleanType()),
        ]
    )
    return map_arrow(source, task, schema)


def _summary(job: WriteJob, counts: Sequence[int], batch_id: int | None, started_s: float) -> WriteSummary:
    numbers: dict[str, Any] = dict(zip(COUNTS, counts, strict=True))
    waited_s, seconds = numbers.pop("waited_ms") / 1000, time.monotonic() - started_s
    summary = WriteSummary(**numbers, waited_s=waited_s, seconds=seconds, batch_id=batch_id)
    job.totals.add(summary)
    if waited_s >= REPORT_MIN_S:
        log.warning("table %s: tasks of the %s waited %.1f s for retries", job.spec.table, job.spec.op, waited_s)
    return summary


def _most_frequent_failure(table: str, failed: list[Any], summary: WriteSummary) -> TableWriteError:
    """Return the failure of most rows."""
    rows: dict[tuple[str, str], int] = {}
    for row in failed:
        reason = (row[CODE], row[DETAIL] or "")
        rows[reason] = rows.get(reason, 0) + row[ROWS]
    (code, detail), count = max(rows.items(), key=lambda entry: entry[1])
    return TableWriteError(table, code, detail, count, summary)


@contextmanager
def _job_description(frame: DataFrame, job: WriteJob, batch_id: int | None) -> Iterator[None]:
    """Set the description of the Spark jobs, unless the caller has set one."""
    if is_remote(frame):
        yield
        return
    context = frame.sparkSession.sparkContext
    previous = context.getLocalProperty(_DESCRIPTION_PROPERTY)
    if previous is None or batch_id is not None:
        part = "" if batch_id is None else f", micro-batch {batch_id}"
        context.setLocalProperty(_DESCRIPTION_PROPERTY, f"tableside: {job.spec.op} {job.spec.table}{part}")
    try:
        yield
    finally:
        context.setLocalProperty(_DESCRIPTION_PROPERTY, previous)  # type: ignore[arg-type]  # null removes it
