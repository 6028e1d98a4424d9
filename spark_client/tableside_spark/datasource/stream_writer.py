"""The executor side of the data source's streaming writes. Requires PySpark 4.1."""

from collections.abc import Iterator

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from tableside_spark.datasource.writers import CHUNKS_MAX, PutSender
from tableside_spark.executor.operation_batch import Token
from tableside_spark.write.micro_batch import BATCH_ID, QUERY_ID, UnsoundTokenError


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes micro-batches with the token of the query.

    The sequence is the number of the micro-batch times `CHUNKS_MAX`, plus the number of the chunk in its task. If a
    task has several rows with one key, the last one is stored. A late task of an earlier micro-batch changes nothing.
    """

    def __init__(self, puts: PutSender, at_least_once: bool) -> None:
        self._puts = puts
        self._at_least_once = at_least_once

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of a task. The first failed row ends the task."""
        return self._puts.send_all(iterator, None if self._at_least_once else _task_token())


def _task_token() -> Token:
    context = TaskContext.get()
    query = None if context is None else context.getLocalProperty(QUERY_ID)
    batch = None if context is None else context.getLocalProperty(BATCH_ID)
    if query is None or batch is None:
        raise UnsoundTokenError(
            "Spark does not provide the query and micro-batch of this task: set the option at_least_once"
        )
    return Token(query, int(batch) * CHUNKS_MAX)
