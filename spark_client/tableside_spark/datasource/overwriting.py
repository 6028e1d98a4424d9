"""The mode `overwrite`: the rows of a query are put, and then all other records are deleted."""

import uuid
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from tableside_client.arrow_table import raise_first_failure
from tableside_client.table_schema import PARTITION_COLUMN
from tableside_spark.datasource.writers import PutSender, TableWriter
from tableside_spark.executor.operation_batch import Token, partition_lists

RECORDS_PER_PAGE = 5_000


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
