"""Trouble for a task that has begun to give the rows of its state, made of expressions: no worker, no code to ship.

An expression may ask the JVM in which it runs. Where executors are the driver's JVM (`local`), the driver tells them by
system properties what is to happen.
"""

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

PROPERTY = "tableside.test.trouble"
KEY = "k3"
"""The key whose row is in trouble; the tasks of other partitions have no such row, and commit."""

HEADSTART_MS = 400
"""How much time the others have to commit before a task fails."""


def slow(batch: DataFrame, row_ms: int) -> DataFrame:
    """The same rows, each of which takes some time."""
    return batch.where(f"coalesce(reflect('java.lang.Thread', 'sleep', {row_ms}L), 'null') = 'null'")


def failing(batch: DataFrame) -> DataFrame:
    """The same rows, but while trouble is ordered, a task with our key fails whenever it is tried."""
    return batch.where(_unless(f"reflect('java.lang.System', 'getProperty', '{PROPERTY}')"))


def failing_once(batch: DataFrame) -> DataFrame:
    """The same rows, but the first task with our key fails after trouble was ordered."""
    return batch.where(_unless(f"reflect('java.lang.System', 'setProperty', '{PROPERTY}', 'over')"))


def order(spark: SparkSession, trouble: str) -> None:
    """Say `ordered` for trouble, anything else for its end."""
    assert spark._jvm is not None
    spark._jvm.java.lang.System.setProperty(PROPERTY, trouble)


def has_come(spark: SparkSession) -> bool:
    """Whether a task has failed since trouble was ordered."""
    assert spark._jvm is not None
    return bool(spark._jvm.java.lang.System.getProperty(PROPERTY) == "over")


def _unless(ordered: str) -> Column:
    slept = f"coalesce(reflect('java.lang.Thread', 'sleep', {HEADSTART_MS}L), 'null') = 'null'"
    fails = f"k = '{KEY}' AND {ordered} = 'ordered' AND {slept}"
    return F.expr(f"CASE WHEN {fails} THEN CAST(raise_error('failed on purpose') AS boolean) ELSE true END")
