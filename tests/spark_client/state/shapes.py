"""Stateful queries as data: each maps two streams to a frame, and has an output mode."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd
from pyspark.sql import (
    DataFrame,
    functions as F,  # noqa: N812 - its name everywhere
)
from pyspark.sql.functions import col
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

WATERMARK = "15 seconds"
Rows = list[str]
Query = Callable[[DataFrame, DataFrame], DataFrame]


@dataclass(frozen=True)
class Shape:
    """A query, its output mode, and how its micro-batches are collected."""

    name: str
    mode: str
    query: Query
    twice: bool = False
    """Whether two actions collect each micro-batch, so that its plan runs twice."""

    def taken(self, batch: DataFrame) -> Rows:
        """Return the rows of a micro-batch, sorted."""
        if self.twice:
            batch.agg(F.count("*")).collect()
        return sorted(map(str, batch.collect()))


def named(*names: str) -> list[Shape]:
    """Return the shapes with these names."""
    known = {shape.name: shape for shape in SHAPES}
    return [known[name] for name in names]


def _in_time(events: DataFrame) -> DataFrame:
    return events.withWatermark("at", WATERMARK)


def _counted(events: DataFrame, _: DataFrame) -> DataFrame:
    return events.groupBy("k").agg(F.count("*").alias("count"), F.sum("n").alias("sum"), F.max("at").alias("latest"))


def _ordered(events: DataFrame, others: DataFrame) -> DataFrame:
    return _counted(events, others).orderBy(col("count").desc(), "k")


def _collected(events: DataFrame, _: DataFrame) -> DataFrame:
    """Growing values of several types, some of them without a key."""
    row = F.struct("n", F.repeat("k", 20).alias("text"), col("n").cast("decimal(12,2)").alias("exact"), "at")
    return events.groupBy("k").agg(F.collect_list(row), F.collect_set("n"), F.approx_count_distinct("n"))


def _windows(events: DataFrame, _: DataFrame) -> DataFrame:
    return _in_time(events).groupBy(F.window("at", "10 seconds"), "k").agg(F.count("*"), F.sum("n").alias("sum"))


def _chained(events: DataFrame, others: DataFrame) -> DataFrame:
    inner = _windows(events, others)
    return inner.groupBy(F.window(F.window_time("window"), "30 seconds")).agg(F.count("*"), F.max("sum"))


def _distinct_in_time(events: DataFrame, _: DataFrame) -> DataFrame:
    return _in_time(events).dropDuplicates(["k", "at"])


def _distinct_within(events: DataFrame, _: DataFrame) -> DataFrame:
    return _in_time(events).dropDuplicatesWithinWatermark(["k"])


def _limited(events: DataFrame, _: DataFrame) -> DataFrame:
    return events.limit(30)


def _sessions(events: DataFrame, _: DataFrame) -> DataFrame:
    return _in_time(events).groupBy(F.session_window("at", "6 seconds"), "k").agg(F.count("*"), F.sum("n"))


def _joined(how: str) -> Query:
    def query(events: DataFrame, others: DataFrame) -> DataFrame:
        left = _in_time(events).select(col("k").alias("left_k"), col("n").alias("left_n"), col("at").alias("left_at"))
        right = _in_time(others)
        near = F.expr("left_k = k AND at BETWEEN left_at - INTERVAL 8 SECONDS AND left_at + INTERVAL 8 SECONDS")
        return left.join(right, near, how)

    return query


def _joined_for_ever(events: DataFrame, others: DataFrame) -> DataFrame:
    """Without a watermark, no state is removed, and each value has many rows."""
    return events.join(others.select("k", col("n").alias("other")).where("other < 40"), "k")


def _grouped(events: DataFrame, _: DataFrame) -> DataFrame:
    """Keep a count and a sum for each key until they time out.

    The function is local, so that Spark ships it by value to the workers, which cannot import tests.
    """

    def summing(key: tuple[Any, ...], frames: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        seen, total = state.get if state.exists else (0, 0)
        how = "timed out" if state.hasTimedOut else "kept"
        for frame in [] if state.hasTimedOut else frames:
            seen, total = seen + len(frame), total + int(frame["n"].sum())
        if state.hasTimedOut or (total % 5 == 0 and state.exists):
            state.remove()
        else:
            state.update((seen, total))
            state.setTimeoutTimestamp(max(state.getCurrentWatermarkMs(), 0) + 20_000)
        yield pd.DataFrame({"k": [key[0]], "seen": [seen], "sum": [total], "how": [how]})

    return (
        _in_time(events)
        .groupBy("k")
        .applyInPandasWithState(
            summing, "k string, seen long, sum long, how string", "seen long, sum long", "update",
            GroupStateTimeout.EventTimeTimeout,
        )
    )  # fmt: skip


SHAPES = [
    Shape("counted update", "update", _counted),
    Shape("counted complete", "complete", _ordered),
    Shape("collected update", "update", _collected),
    Shape("windows append", "append", _windows),
    Shape("windows update", "update", _windows),
    Shape("chained append", "append", _chained),
    Shape("distinct in time", "append", _distinct_in_time),
    Shape("distinct within", "append", _distinct_within),
    Shape("limited", "append", _limited),
    Shape("sessions append", "append", _sessions),
    Shape("joined left", "append", _joined("leftOuter")),
    Shape("joined full", "append", _joined("fullOuter")),
    Shape("joined for ever", "append", _joined_for_ever),
    Shape("joined twice", "append", _joined("leftOuter"), twice=True),
    Shape("grouped", "update", _grouped),
]
