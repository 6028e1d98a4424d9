"""Failed rows as a DataFrame, the reactions to them, and dead letters."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from pyspark.sql import Column, DataFrame, Window, functions as F

from tableside_spark.executor.operation_batch import LATER_PARTS, PARTITION, PROBLEM, Token, internal
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
    needed = (*keys, PARTITION, *(grouping.identity or map(internal, documents)))
    return [name for name in operations.columns if name in needed]


def failed_rows(
    rows: DataFrame, outcomes: DataFrame, grouping: Grouping, keys: Sequence[str], documents: Sequence[str]
) -> DataFrame:
    """Return a row per failed row: key, documents and reason, from outcomes with the `outcome_columns`."""
    failed = outcomes.where(F.col(CODE).isNotNull())
    if grouping.identity:
        failed = _rows_of_operations(grouping.with_text(rows), failed, grouping.identity)
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


def _rows_of_operations(rows: DataFrame, failed: DataFrame, identity: Sequence[str]) -> DataFrame:
    """Return the rows with a problem, and the rows of failed operations."""
    sent = failed.where(F.col(LATER_PARTS) >= 0).select(*map(quoted, identity), *map(F.col, (CODE, DETAIL, RETRIABLE)))
    refused = rows.where(F.col(PROBLEM).isNull()).join(sent, list(identity))
    reason: dict[str, Column] = {CODE: F.lit(INVALID_OPERATION), DETAIL: F.col(PROBLEM), RETRIABLE: F.lit(False)}
    return refused.unionByName(rows.where(F.col(PROBLEM).isNotNull()).withColumns(reason))


LETTER_TEXT_CHARACTERS_MAX = 30_000
"""The maximum length of each text in a dead letter.

Key, update, default and detail together fit a record of every store, and 1 MiB even if JSON escapes each character.
"""


def put_dead_letters(
    dead_letters: DeadLetterTable,
    failed: DataFrame,
    table: str,
    op: str,
    keys: Sequence[str],
    origin: Token | None,
    token: Token | None,
) -> None:
    """Store failed rows as dead letters, once, even if the write is repeated.

    The key of a dead letter is a digest of the row and its origin, and a number that distinguishes equal rows. Its
    value has the columns of `failed`, and `table`, `op`, `writer`, `sequence`, `time` and `truncated`.

    `origin` is the query and the number of its micro-batch, or the token of the write. The dead letters are stored
    under `token`.
    """
    documents = [name for name in failed.columns if name not in (*keys, *OUTCOME_COLUMNS)]
    writer, sequence = origin or (None, None)
    row: dict[str, Column] = {
        "table": F.lit(table),
        "op": F.lit(op),
        "key": F.to_json(F.struct(*map(quoted, keys)), {"ignoreNullFields": "false"}),
        **{name: F.col(name) for name in documents},
        "writer": F.lit(writer).cast("string"),
        "sequence": F.lit(sequence).cast("long"),
    }
    outcome = {name: F.col(name) for name in ("rows", "code", "detail")}
    digest = F.sha2(F.to_json(_struct(row), {"ignoreNullFields": "false"}), 256)
    texts = [name for name in ("key", "detail", *documents) if name != "partition"]
    members = row | outcome
    too_long = [F.coalesce(F.length(members[name]) > LETTER_TEXT_CHARACTERS_MAX, F.lit(False)) for name in texts]
    members |= {name: F.substring(members[name], 1, LETTER_TEXT_CHARACTERS_MAX) for name in texts}
    truncated = F.array_contains(F.array(*too_long), True)
    letter = _struct(members | {"truncated": truncated, "time": F.current_timestamp()})
    letters = failed.select(digest.alias("digest"), letter.alias("letter"))
    number = F.row_number().over(Window.partitionBy("digest").orderBy("letter.code", "letter.detail"))
    numbered = letters.select(F.concat_ws("-", "digest", number).alias("id"), "letter")
    dead_letters.put(numbered, "id", value="letter", token=token, at_least_once=not token)


def _struct(members: dict[str, Column]) -> Column:
    return F.struct(*[column.alias(name) for name, column in members.items()])
