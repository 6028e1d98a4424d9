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
from tableside_spark.plan.frames import is_remote, map_arrow, share_in_flight
from tableside_spark.write import failures
from tableside_spark.write.failures import OnError
from tableside_spark.write.summary import TableWriteError, Totals, WriteSummary

_DESCRIPTION = "spark.job.description"


@dataclass(frozen=True, slots=True)
class WriteJob:
    """A write without its operations and its token: what it does, how much at once, and what happens to failures.

    `keys` are the key's columns as the caller named them.
    """

    spec: WriteSpec
    keys: tuple[str, ...]
    on_error: OnError
    in_flight_max: int
    totals: Totals


def run(write: WriteJob, operations: DataFrame, token: Token | None, batch_id: int | None = None) -> WriteSummary:
    """Send the operations once, and say what became of them; failures that are not taken care of are raised."""
    began = time.monotonic()
    with _described(operations, write, batch_id):
        if write.on_error == "fail":
            return _or_fail(write, operations, token, batch_id, began)
        return _with_failures(write, operations, token, batch_id, began)


def _or_fail(
    write: WriteJob, operations: DataFrame, token: Token | None, batch_id: int | None, began: float
) -> WriteSummary:
    found = _outcomes(write, operations, token, shown=()).collect()
    summary = _summary(write, [sum(row[internal(name)] or 0 for row in found) for name in COUNTS], batch_id, began)
    if summary.failed:
        raise _commonest(write.spec.table, [row for row in found if row[CODE] is not None], summary)
    return summary


def _with_failures(
    write: WriteJob, operations: DataFrame, token: Token | None, batch_id: int | None, began: float
) -> WriteSummary:
    """The outcomes are checkpointed before they are looked at, so that no later look sends anything again."""
    shown = tuple(operations.columns)
    outcomes = _outcomes(write, operations, token, shown=shown).localCheckpoint(eager=True)
    sums = outcomes.agg(*[F.coalesce(F.sum(internal(name)), F.lit(0)).alias(name) for name in COUNTS]).collect()[0]
    summary = _summary(write, list(sums), batch_id, began)
    failed = failures.as_caller_sees(outcomes, write.keys, write.spec.documents)
    if write.on_error == "collect":
        return replace(summary, failures=failed)
    if summary.failed:
        _refuse_what_may_pass(write.spec.table, failed, summary)
        _hand_over(write, failed, token, batch_id)
    return summary


def _refuse_what_may_pass(table: str, failed: DataFrame, summary: WriteSummary) -> None:
    """A store that is away makes no dead letters: the write fails, and is repeated."""
    passing = failed.where("retriable").groupBy("code", "detail").agg(F.sum("rows").alias("rows"))
    found = passing.orderBy(F.desc("rows")).limit(1).collect()
    if found:
        raise TableWriteError(table, found[0]["code"], found[0]["detail"] or "", int(found[0]["rows"]), summary)


def _hand_over(write: WriteJob, failed: DataFrame, token: Token | None, batch_id: int | None) -> None:
    if callable(write.on_error):
        write.on_error(failed.drop("retriable"), batch_id)
    elif not isinstance(write.on_error, str):
        failures.into_table(write.on_error, failed, write.spec.table, write.spec.op, write.keys, token)


def _outcomes(write: WriteJob, operations: DataFrame, token: Token | None, *, shown: tuple[str, ...]) -> DataFrame:
    source, window = share_in_flight(operations, write.in_flight_max)
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


def _commonest(table: str, failed: list[Any], summary: WriteSummary) -> TableWriteError:
    """The failure that stands for most rows."""
    rows: dict[tuple[str, str], int] = {}
    for row in failed:
        alike = (row[CODE], row[DETAIL] or "")
        rows[alike] = rows.get(alike, 0) + row[ROWS]
    (code, detail), count = max(rows.items(), key=lambda entry: entry[1])
    return TableWriteError(table, code, detail, count, summary)


@contextmanager
def _described(frame: DataFrame, write: WriteJob, batch_id: int | None) -> Iterator[None]:
    """Have Spark's UI say what the jobs are for, unless the caller has said it."""
    if is_remote(frame):
        yield
        return
    context = frame.sparkSession.sparkContext
    before = context.getLocalProperty(_DESCRIPTION)
    if before is None or batch_id is not None:
        part = "" if batch_id is None else f", micro-batch {batch_id}"
        context.setLocalProperty(_DESCRIPTION, f"tableside: {write.spec.op} {write.spec.table}{part}")
    try:
        yield
    finally:
        context.setLocalProperty(_DESCRIPTION, before)  # type: ignore[arg-type]  # null removes it
