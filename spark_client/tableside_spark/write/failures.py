"""What becomes of failed operations: the write fails, or they go to the caller, to his handler, or to a table."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from tableside_spark.executor.operation_batch import PARTITION, ROWS, Token, internal
from tableside_spark.executor.write_task import CODE, DETAIL, RETRIABLE
from tableside_spark.plan.frames import quoted

OUTCOME_COLUMNS = ("rows", "code", "detail", "retriable")
"""What stands beside the key and what was sent, in the frame of failed operations."""

FailureHandler = Callable[[DataFrame, int | None], None]
"""Takes the failed operations, and the number of the micro-batch in a stream."""


@runtime_checkable
class DeadLetterTable(Protocol):
    """The part of a `Table` that stores dead letters."""

    def put(
        self, frame: DataFrame, key: str, /, *, value: str, token: tuple[str, int] | None, at_least_once: bool
    ) -> Any:
        """Store one record per key."""
        ...


OnError: TypeAlias = Literal["fail", "collect"] | FailureHandler | DeadLetterTable
"""What happens to failures: the write fails, they are collected, a function takes them, or a table stores them."""


def failed_operations(outcomes: DataFrame, keys: Sequence[str], documents: Sequence[str]) -> DataFrame:
    """The failed operations: the key, what was sent, how many rows it stood for, and why it failed."""
    routed = [F.col(PARTITION).alias("partition")] if PARTITION in outcomes.columns else []
    return outcomes.where(F.col(CODE).isNotNull()).select(
        *[quoted(key) for key in keys],
        *routed,
        *[F.col(internal(name)).alias(name) for name in documents],
        F.col(ROWS).alias("rows"),
        F.col(CODE).alias("code"),
        F.col(DETAIL).alias("detail"),
        F.col(RETRIABLE).alias("retriable"),
    )


def put_dead_letters(
    dead_letters: DeadLetterTable, failures: DataFrame, table: str, op: str, keys: Sequence[str], token: Token | None
) -> None:
    """Keep failed operations in a table of dead letters, once, however often the write is repeated.

    The key of one is a digest of all that it says; its value has the names of `failures`, and `table`, `op`, `writer`
    and `sequence`.
    """
    columns = [name for name in failures.columns if name not in (*keys, "retriable")]
    writer, sequence = token or (None, None)
    said: list[Column] = [
        F.lit(table).alias("table"),
        F.lit(op).alias("op"),
        F.to_json(F.struct(*[quoted(key) for key in keys])).alias("key"),
        *[F.col(name) for name in columns],
        F.lit(writer).cast("string").alias("writer"),
        F.lit(sequence).cast("long").alias("sequence"),
    ]
    letters = failures.select(F.struct(*said).alias("letter"))
    keyed = letters.withColumn("digest", F.sha2(F.to_json("letter", {"ignoreNullFields": "false"}), 256))
    dead_letters.put(keyed.dropDuplicates(["digest"]), "digest", value="letter", token=token, at_least_once=not token)
