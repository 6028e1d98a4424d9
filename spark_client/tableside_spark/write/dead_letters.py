"""Store failed rows as dead letters in a table."""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from tableside_spark.executor.operation_batch import Token
from tableside_spark.plan.frames import quoted
from tableside_spark.write.failures import OUTCOME_COLUMNS, DeadLetterTable

LETTER_TEXT_CHARACTERS_MAX = 30_000
"""The maximum length of each text in a dead letter. Key, update and default together fit a record of every store."""


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

    Args:
        dead_letters: The table of the dead letters.
        failed: The failed rows.
        table: The table of the write.
        op: The operation of the write.
        keys: The key columns of `failed`.
        origin: The query and the number of its micro-batch, or the token of the write.
        token: The token under which the dead letters are stored.
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
    letter = _struct(_shortened({**row, **outcome}, ("key", "detail", *documents)) | {"time": F.current_timestamp()})
    letters = failed.select(digest.alias("digest"), letter.alias("letter"))
    number = F.row_number().over(Window.partitionBy("digest").orderBy("letter.code", "letter.detail"))
    numbered = letters.select(F.concat_ws("-", "digest", number).alias("id"), "letter")
    dead_letters.put(numbered, "id", value="letter", token=token, at_least_once=not token)


def _struct(members: dict[str, Column]) -> Column:
    return F.struct(*[column.alias(name) for name, column in members.items()])


def _shortened(members: dict[str, Column], texts: Sequence[str]) -> dict[str, Column]:
    """Limit the length of the texts, and add `truncated`: whether one of them is incomplete."""
    limit = LETTER_TEXT_CHARACTERS_MAX
    too_long = [F.coalesce(F.length(members[name]) > limit, F.lit(False)) for name in texts if name != "partition"]
    cut = {name: F.substring(members[name], 1, limit) for name in texts if name != "partition"}
    return {**members, **cut, "truncated": F.array_contains(F.array(*too_long), True)}
