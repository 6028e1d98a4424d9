"""The mode `overwrite`: the rows of a query replace the records of a table.

Tables with generations are replaced at once. In others, the rows are put, and then all other records are deleted.
"""

import dataclasses
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from tableside_client.arrow_table import raise_first_failure
from tableside_client.errors import TablesideError
from tableside_client.generations import CLEANUP_S, require_records
from tableside_client.table_schema import PARTITION_COLUMN
from tableside_spark.datasource.writers import CommitMessage, PutSender, TableWriter
from tableside_spark.executor.operation_batch import Token, partition_lists

RECORDS_PER_PAGE = 5_000


class ReplacingWriter(TableWriter):
    """Puts the rows of a query in a new generation, and activates it when all of them are stored.

    If the query fails, the table keeps its records.
    """

    def __init__(self, puts: PutSender, *, allow_empty: bool) -> None:
        """Create the generation. Spark calls this on the driver, after the stages before the write."""
        self._target, self._allow_empty = puts.target, allow_empty
        with self._target.connection.open() as client:
            table = client.table(self._target.table)
            self._number = table.create_generation("overwrite of Spark").generation
            self._replaced = int(table.describe()["generation"])
        loading = dataclasses.replace(self._target, table=f"{self._target.table}@{self._number}")
        super().__init__(dataclasses.replace(puts, target=loading))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Activate the generation. Called on the driver after all tasks have succeeded."""
        written = sum(message.rows for message in messages if isinstance(message, CommitMessage))
        require_records(self._target.table, written, allow_empty=self._allow_empty)
        with self._target.connection.open() as client:
            client.table(self._target.table).activate(self._number, expected=self._replaced)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Remove the generation. Called on the driver after a failure."""
        with suppress(TablesideError), self._target.connection.open() as client:
            client.table(self._target.table, deadline_s=CLEANUP_S).remove_generation(self._number)


class OverwritingWriter(TableWriter):
    """Puts the rows of a query. When all of them are stored, it deletes the records that the query has not written.

    The puts carry a token of this write. A delete with the same token has no effect on a record with such a put, and
    removes every other record. If the query fails, nothing is deleted.
    """

    def __init__(self, puts: PutSender) -> None:
        """Raises `ValueError` if the puts cannot have tokens that distinguish their records."""
        table = puts.target.table
        if puts.encoder.sequence_by is not None:
            raise ValueError('sequence_by is for mode("append"): an overwritten table has the rows of this query only')
        if not puts.target.table_schema.tokens:
            raise ValueError(f"table {table} keeps no tokens, by which an overwrite finds the records to delete")
        super().__init__(puts)
        self._token = Token(f"overwrite-{uuid.uuid4()}", 0)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of a task. The first failed row ends the task."""
        return self._puts.send_all(iterator, self._token)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Delete the records without a put of this write. Called on the driver after all tasks have succeeded."""
        target = self._puts.target
        with target.connection.open() as client:
            table = client.arrow_table(target.table)
            for page in table.scan(fields=[], limit=RECORDS_PER_PAGE):
                deletes = self._deletes(page)
                raise_first_failure(target.table, table.batch(deletes, op="delete", writer=self._token.writer))

    def _deletes(self, page: pa.Table) -> pa.Table:
        deletes = {"key": page["key"], "sequence": pa.repeat(pa.scalar(self._token.sequence, pa.int64()), len(page))}
        if PARTITION_COLUMN in page.column_names:
            deletes["partitions"] = partition_lists(page[PARTITION_COLUMN])
        return pa.table(deletes)
