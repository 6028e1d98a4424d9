"""Failed operations: as a DataFrame, and as dead letters in a table."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from tableside_spark.executor.operation_batch import PARTITION, ROWS, Token, internal
from tableside_spark.executor.write_task import CODE, DETAIL, RETRIABLE
from tableside_spark.plan.frames import quoted

OUTCOME_COLUMNS = ("rows", "code", "detail", "retriable")
"""The columns after the key and the documents in the DataFrame of failed operations."""

FailureHandler = Callable[[DataFrame, int | None], None]
"""A function of the failed operations and the number of the micro-batch (None for a batch)."""


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


def failed_operations(outcomes: DataFrame, keys: Sequence[str], documents: Sequence[str]) -> DataFrame:
    """Return the failed operations: key, documents, number of rows, and the reason of the failure."""
    partition = [F.col(PARTITION).alias("partition")] if PARTITION in outcomes.columns else []
    return outcomes.where(F.col(CODE).isNotNull()).select(
        *[quoted(key) for key in keys],
        *partition,
        *[F.col(internal(name)).alias(name) for name in documents],
        F.col(ROWS).alias("rows"),
        F.col(CODE).alias("code"),
        F.col(DETAIL).alias("detail"),
        F.col(RETRIABLE).alias("retriable"),
    )


def put_dead_letters(
    dead_letters: DeadLetterTable, failures: DataFrame, table: str, op: str, keys: Sequence[str], token: Token | None
) -> None:
    """Store failed operations as dead letters, once, however often the write is repeated.

    The key of a dead letter is a digest of its content. Its value has the columns of `failures`, and `table`, `op`,
    `writer` and `sequence`.
    """
    columns = [name for name in failures.columns if name not in (*keys, "retriable")]
    writer, sequence = token or (None, None)
    members: list[Column] = [
        F.lit(table).alias("table"),
        F.lit(op).alias("op"),
        F.to_json(F.struct(*[quoted(key) for key in keys])).alias("key"),
        *[F.col(name) for name in columns],
        F.lit(writer).cast("string").alias("writer"),
        F.lit(sequence).cast("long").alias("sequence"),
    ]
    letters = failures.select(F.struct(*members).alias("letter"))
    keyed = letters.withColumn("digest", F.sha2(F.to_json("letter", {"ignoreNullFields": "false"}), 256))
    dead_letters.put(keyed.dropDuplicates(["digest"]), "digest", value="letter", token=token, at_least_once=not token)
