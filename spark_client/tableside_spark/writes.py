"""A frame written to a table: operations sent by the executors, and what became of them counted on the driver."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere
from pyspark.sql.types import LongType, StringType, StructField, StructType

from tableside_spark.batching import ChunkSize
from tableside_spark.connection import Connection
from tableside_spark.errors import TableWriteError
from tableside_spark.facts import TableFacts, wire_keys
from tableside_spark.frames import quoted, refuse_duplicates, share_in_flight
from tableside_spark.sending import CODE, COUNTS, DETAIL, ROWS, Sending, internal
from tableside_spark.summary import WriteSummary

OnError = Literal["fail", "collect"]


@dataclass(frozen=True, slots=True)
class Write:
    """One write as a whole: what it does where, under which token, and what a failure means."""

    connection: Connection
    table: str
    facts: TableFacts
    op: str
    documents: tuple[str, ...]
    writer: str | None
    ttl_s: float | None
    at_least_once: bool
    on_error: OnError
    in_flight_max: int
    size: ChunkSize


def refuse(frame: DataFrame, on_error: OnError) -> None:
    """Refuse what no write takes: a streaming frame, columns with one name, an unknown way with failures."""
    if frame.isStreaming:
        raise ValueError("the frame is streaming: put, update and delete take batch frames; join takes both")
    if on_error not in ("fail", "collect"):
        raise ValueError(f"on_error is fail or collect, not {on_error!r}")
    refuse_duplicates(frame.columns, frame)


def run(write: Write, operations: DataFrame, keys: Sequence[str]) -> WriteSummary:
    """Send the operations once, and say what became of them.

    The outcomes are checkpointed before they are looked at, so that no later look sends anything again.
    """
    began = time.monotonic()
    outcomes = _outcomes(write, operations, keys).localCheckpoint(eager=True)
    sums = [F.coalesce(F.sum(internal(name)), F.lit(0)).alias(name) for name in COUNTS]
    counts = outcomes.agg(*sums).collect()[0].asDict()
    failures = outcomes.where(F.col(CODE).isNotNull())
    seconds = time.monotonic() - began
    if write.on_error == "fail":
        summary = WriteSummary(**counts, seconds=seconds)
        if summary.failed:
            raise _first_failure(write.table, failures, summary)
        return summary
    return WriteSummary(**counts, seconds=seconds, failures=_as_caller_sees(write, failures, keys))


def _outcomes(write: Write, operations: DataFrame, keys: Sequence[str]) -> DataFrame:
    columns, names = wire_keys(write.facts, keys)
    source, window = share_in_flight(operations, write.in_flight_max)
    sending = Sending(
        connection=write.connection,
        table=write.table,
        op=write.op,
        key_columns=columns,
        key_names=names,
        documents=write.documents,
        writer=write.writer,
        ttl_s=write.ttl_s,
        at_least_once=write.at_least_once,
        stop_at_failure=write.on_error == "fail",
        size=write.size,
        window=window,
    )
    return source.mapInArrow(lambda batches: sending(batches), _outcome_schema(operations, columns, write.documents))


def _outcome_schema(operations: DataFrame, keys: Sequence[str], documents: Sequence[str]) -> StructType:
    texts = [*map(internal, documents), CODE, DETAIL]
    return StructType(
        [
            *(StructField(internal(name), LongType()) for name in COUNTS),
            *(StructField(key, operations.schema[key].dataType) for key in keys),
            StructField(ROWS, LongType()),
            *(StructField(name, StringType()) for name in texts),
        ]
    )


def _first_failure(table: str, failures: DataFrame, summary: WriteSummary) -> TableWriteError:
    first = failures.groupBy(CODE, DETAIL).agg(F.sum(ROWS).alias(ROWS)).orderBy(F.desc(ROWS)).limit(1).collect()[0]
    return TableWriteError(table, first[CODE], first[DETAIL] or "", int(first[ROWS]), summary)


def _as_caller_sees(write: Write, failures: DataFrame, keys: Sequence[str]) -> DataFrame:
    return failures.select(
        *[quoted(key) for key in keys],
        *[F.col(internal(name)).alias(name) for name in write.documents],
        F.col(ROWS).alias("rows"),
        F.col(CODE).alias("code"),
        F.col(DETAIL).alias("detail"),
    )
