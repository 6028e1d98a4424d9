"""Operations sent by the executors, and what became of them counted on the driver."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere
from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType

from tableside_spark.executor.operation_batch import PARTITION, ROWS, Token, internal
from tableside_spark.executor.write_task import CODE, COUNTS, DETAIL, RETRIABLE, WriteSpec, WriteTask
from tableside_spark.plan.frames import divide_in_flight, is_remote, map_arrow
from tableside_spark.write import failures
from tableside_spark.write.failures import OnError
from tableside_spark.write.summary import TableWriteError, WriteSummary, WriteTotals

_DESCRIPTION_PROPERTY = "spark.job.description"


@dataclass(frozen=True, slots=True)
class WriteJob:
    """A write without its operations and its token: what it does, how much at once, and what happens to failures.

    `keys` are the key's columns as the caller named them.
    """

    spec: WriteSpec
    keys: tuple[str, ...]
    on_error: OnError
    in_flight_max: int
    totals: WriteTotals


def run(write: WriteJob, operations: DataFrame, token: Token | None, batch_id: int | None = None) -> WriteSummary:
    """Send the operations once, and say what became of them; failures that are not taken care of are raised."""
    began = time.monotonic()
    with _job_description(operations, write, batch_id):
        if write.on_error == "fail":
            return _run_or_fail(write, operations, token, batch_id, began)
        return _run_with_failures(write, operations, token, batch_id, began)


def _run_or_fail(
    write: WriteJob, operations: DataFrame, token: Token | None, batch_id: int | None, began: float
) -> WriteSummary:
    found = _outcomes(write, operations, token, shown=()).collect()
    summary = _summary(write, [sum(row[internal(name)] or 0 for row in found) for name in COUNTS], batch_id, began)
    if summary.failed:
        raise _most_frequent_failure(write.spec.table, [row for row in found if row[CODE] is not None], summary)
    return summary


def _run_with_failures(
    write: WriteJob, operations: DataFrame, token: Token | None, batch_id: int | None, began: float
) -> WriteSummary:
    """The outcomes are checkpointed before they are looked at, so that no later look sends anything again."""
    shown = tuple(operations.columns)
    outcomes = _outcomes(write, operations, token, shown=shown).localCheckpoint(eager=True)
    sums = outcomes.agg(*[F.coalesce(F.sum(internal(name)), F.lit(0)).alias(name) for name in COUNTS]).collect()[0]
    summary = _summary(write, list(sums), batch_id, began)
    failed = failures.failed_operations(outcomes, write.keys, write.spec.documents)
    if write.on_error == "collect":
        return replace(summary, failures=failed)
    if summary.failed:
        _raise_retriable_failures(write.spec.table, failed, summary)
        _handle_failures(write, failed, token, batch_id)
    return summary


def _raise_retriable_failures(table: str, failed: DataFrame, summary: WriteSummary) -> None:
    """Raise if a failure is temporary: the write is repeated as a whole, and the rows are not dead letters."""
    temporary = failed.where("retriable").groupBy("code", "detail").agg(F.sum("rows").alias("rows"))
    found = temporary.orderBy(F.desc("rows")).limit(1).collect()
    if found:
        raise TableWriteError(table, found[0]["code"], found[0]["detail"] or "", int(found[0]["rows"]), summary)


def _handle_failures(write: WriteJob, failed: DataFrame, token: Token | None, batch_id: int | None) -> None:
    if callable(write.on_error):
        write.on_error(failed.drop("retriable"), batch_id)
    elif not isinstance(write.on_error, str):
        failures.put_dead_letters(write.on_error, failed, write.spec.table, write.spec.op, write.keys, token)


def _outcomes(write: WriteJob, operations: DataFrame, token: Token | None, *, shown: tuple[str, ...]) -> DataFrame:
    source, window = divide_in_flight(operations, write.in_flight_max)
    wanted = (*write.keys, PARTITION, *map(internal, write.spec.documents))
    shown = tuple(name for name in shown if name in wanted)
    task = WriteTask(write.spec, shown, token, stop_at_failure=write.on_error == "fail", window=window)
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


def _summary(write: WriteJob, counts: Sequence[int], batch_id: int | None, began: float) -> WriteSummary:
    numbers: dict[str, Any] = dict(zip(COUNTS, counts, strict=True))
    summary = WriteSummary(**numbers, seconds=time.monotonic() - began, batch_id=batch_id)
    write.totals.add(summary)
    return summary


def _most_frequent_failure(table: str, failed: list[Any], summary: WriteSummary) -> TableWriteError:
    """The failure that stands for most rows."""
    rows: dict[tuple[str, str], int] = {}
    for row in failed:
        alike = (row[CODE], row[DETAIL] or "")
        rows[alike] = rows.get(alike, 0) + row[ROWS]
    (code, detail), count = max(rows.items(), key=lambda entry: entry[1])
    return TableWriteError(table, code, detail, count, summary)


@contextmanager
def _job_description(frame: DataFrame, write: WriteJob, batch_id: int | None) -> Iterator[None]:
    """Have Spark's UI say what the jobs are for, unless the caller has said it."""
    if is_remote(frame):
        yield
        return
    context = frame.sparkSession.sparkContext
    before = context.getLocalProperty(_DESCRIPTION_PROPERTY)
    if before is None or batch_id is not None:
        part = "" if batch_id is None else f", micro-batch {batch_id}"
        context.setLocalProperty(_DESCRIPTION_PROPERTY, f"tableside: {write.spec.op} {write.spec.table}{part}")
    try:
        yield
    finally:
        context.setLocalProperty(_DESCRIPTION_PROPERTY, before)  # type: ignore[arg-type]  # null removes it
