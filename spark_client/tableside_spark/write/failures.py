"""Failed rows as a DataFrame, and the reactions to them."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from tableside_spark.executor.operation_batch import LATER_PARTS, PARTITION, PROBLEM, internal
from tableside_spark.executor.write_task import CODE, DETAIL, INVALID_OPERATION, RETRIABLE
from tableside_spark.plan.frames import quoted
from tableside_spark.plan.grouping import Grouping

OUTCOME_COLUMNS = ("rows", "code", "detail", "retriable")
"""The columns after the key and the documents in the DataFrame of failed rows."""

FailureHandler = Callable[[DataFrame, int | None], None]
"""A function of the failed rows and the number of the micro-batch (None for a batch)."""


@runtime_checkable
class DeadLetterTable(Protocol):
    """The interface of a `Table` that stores dead letters."""

    def put(
        self, frame: DataFrame, key: str, /, *, value: str, token: tuple[str, int] | None, at_least_once: bool
    ) -> Any:
        """Store one record per key."""
        ...


OnError: TypeAlias = Literal["fail", "collect"] | FailureHandler | DeadLetterTable
"""The reaction to failures: fail the write, collect them, call a function, or store them in a table."""


def outcome_columns(
    operations: DataFrame, grouping: Grouping, keys: Sequence[str], documents: Sequence[str]
) -> list[str]:
    """Return the columns of operations that `failed_rows` needs in the outcomes."""
    needed = (*keys, PARTITION, *([LATER_PARTS] if grouping.groups else map(internal, documents)))
    return [name for name in operations.columns if name in needed]


def failed_rows(
    rows: DataFrame, outcomes: DataFrame, grouping: Grouping, keys: Sequence[str], documents: Sequence[str]
) -> DataFrame:
    """Return one row per failed row: key, documents, and the reason of the failure.

    Args:
        rows: The rows, assigned to operations by `grouping`.
        outcomes: The outcomes, with the columns that `outcome_columns` returns.
        grouping: The grouping of the write.
        keys: The key columns.
        documents: The names of the documents, such as `value`.
    """
    failed = outcomes.where(F.col(CODE).isNotNull())
    if grouping.groups:
        failed = _rows_of_operations(grouping.with_text(rows), failed, keys)
    partition = [F.col(PARTITION).alias("partition")] if PARTITION in failed.columns else []
    return failed.select(
        *map(quoted, keys),
        *partition,
        *[F.col(internal(name)).alias(name) for name in documents],
        F.lit(1).cast("long").alias("rows"),
        F.col(CODE).alias("code"),
        F.col(DETAIL).alias("detail"),
        F.col(RETRIABLE).alias("retriable"),
    )


def _rows_of_operations(rows: DataFrame, failed: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Return the rows with a problem, and the rows of failed operations."""
    identity = [*keys, *[name for name in (PARTITION, LATER_PARTS) if name in failed.columns]]
    sent = failed.where(F.col(LATER_PARTS) >= 0).select(*map(quoted, identity), *map(F.col, (CODE, DETAIL, RETRIABLE)))
    refused = rows.where(F.col(PROBLEM).isNull()).join(sent, identity)
    reason: dict[str, Column] = {CODE: F.lit(INVALID_OPERATION), DETAIL: F.col(PROBLEM), RETRIABLE: F.lit(False)}
    return refused.unionByName(rows.where(F.col(PROBLEM).isNotNull()).withColumns(reason))
