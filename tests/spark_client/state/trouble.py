"""Failures and delays of tasks that are returning rows of their state, as expressions: no worker, no shipped code.

An expression can read properties of its JVM. If executors run in the driver's JVM (`local`), the driver controls the
failures with system properties.
"""

from pyspark.sql import (
    Column,
    DataFrame,
    SparkSession,
    functions as F,  # noqa: N812 - its name everywhere
)

PROPERTY = "tableside.test.trouble"
KEY = "k3"
"""The key whose row fails. The tasks of other partitions do not have it, and commit."""

HEADSTART_MS = 400
"""The time for the other tasks to commit before the task fails."""


def slow(batch: DataFrame, row_ms: int) -> DataFrame:
    """Return the same rows with a delay for each."""
    return batch.where(f"coalesce(reflect('java.lang.Thread', 'sleep', {row_ms}L), 'null') = 'null'")


def failing(batch: DataFrame) -> DataFrame:
    """Return the same rows, but every attempt of the task with `KEY` fails while trouble is ordered."""
    return batch.where(_unless(f"reflect('java.lang.System', 'getProperty', '{PROPERTY}')"))


def failing_once(batch: DataFrame) -> DataFrame:
    """Return the same rows, but the first attempt of the task with `KEY` fails after trouble was ordered."""
    return batch.where(_unless(f"reflect('java.lang.System', 'setProperty', '{PROPERTY}', 'over')"))


def order(spark: SparkSession, trouble: str) -> None:
    """Order trouble with `ordered`, and end it with any other text."""
    assert spark._jvm is not None
    spark._jvm.java.lang.System.setProperty(PROPERTY, trouble)


def has_come(spark: SparkSession) -> bool:
    """Return whether a task has failed since trouble was ordered."""
    assert spark._jvm is not None
    return bool(spark._jvm.java.lang.System.getProperty(PROPERTY) == "over")


def _unless(ordered: str) -> Column:
    slept = f"coalesce(reflect('java.lang.Thread', 'sleep', {HEADSTART_MS}L), 'null') = 'null'"
    fails = f"k = '{KEY}' AND {ordered} = 'ordered' AND {slept}"
    return F.expr(f"CASE WHEN {fails} THEN CAST(raise_error('failed on purpose') AS boolean) ELSE true END")
