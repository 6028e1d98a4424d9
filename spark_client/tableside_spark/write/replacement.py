"""Replace a table: put the rows of a DataFrame in a new generation, and activate it."""

from collections.abc import Callable, Sequence

from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from tableside_client.connection import Connection, shared_client
from tableside_client.generations import require_records
from tableside_spark.executor.operation_batch import ROWS
from tableside_spark.executor.write_task import CODE, DETAIL
from tableside_spark.write.job import REQUEST_CODES
from tableside_spark.write.summary import TableWriteError, WriteSummary, failure_groups

GONE = "the service removed the new generation: another one was activated, or it was idle for generations_idle_s"


def replace_records(
    connection: Connection,
    table: str,
    keys: Sequence[str],
    put: Callable[[str], WriteSummary],
    *,
    allow_empty: bool,
    note: str | None,
) -> WriteSummary:
    """Put rows in a new generation of a table, and activate it. A failure removes it.

    Args:
        connection: The service.
        table: The name of the table.
        keys: The key columns, for messages.
        put: Puts all rows in the table with this name.
        allow_empty: Whether the table may be empty afterwards.
        note: The note of the generation.

    Raises:
        TableWriteError: `put` raises it, or has collected failures that are temporary.
        ValueError: No row was applied, and `allow_empty` is not set.
    """
    with shared_client(connection).table(table).replacement(note) as new:
        try:
            summary = put(new.name)
            _require_permanent(new.name, keys, summary)
        except TableWriteError as error:
            if error.code in ("generation_not_found", "generation_sealed"):
                error.add_note(GONE)
            raise
        require_records(table, summary.applied + summary.superseded, allow_empty=allow_empty)
    return summary


def _require_permanent(table: str, keys: Sequence[str], summary: WriteSummary) -> None:
    """Raise if a collected failure is not caused by its row: the table would lack a row that is valid."""
    if summary.failures is None or not summary.failed:
        return
    temporary = summary.failures.where(F.col("retriable") | F.col("code").isin(*REQUEST_CODES)).limit(1).collect()
    if temporary:
        [row] = temporary
        found = {CODE: row["code"], DETAIL: row["detail"], ROWS: summary.failed, **{key: row[key] for key in keys}}
        raise TableWriteError(table, failure_groups([found], keys), summary)
