"""The executor side of the data source's streaming writes. Requires PySpark 4.1."""

from collections.abc import Iterator

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from tableside_spark.datasource.writers import CHUNKS_MAX, PutSender
from tableside_spark.executor.operation_batch import Token
from tableside_spark.write.query_memory import Content, sequence_of
from tableside_spark.write.tokens import BATCH_ID, QUERY_ID, UnsoundTokenError

RUN_ID = "spark.jobGroup.id"
"""The local property with the id of the query's run, which is the group of its jobs."""


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes micro-batches with the token of the query. A late task of an earlier micro-batch changes nothing.

    The sequence is that of the micro-batch times `CHUNKS_MAX`, plus the number of the chunk in its task. A task cannot
    read the offsets, so a micro-batch that another run of the query repeats is put again.
    """

    def __init__(self, puts: PutSender, at_least_once: bool) -> None:
        self._puts = puts
        self._at_least_once = at_least_once

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of a task. The first failed row ends the task."""
        if self._at_least_once:
            return self._puts.send_all(iterator)
        context, target = TaskContext.get(), self._puts.target
        properties = [context and context.getLocalProperty(name) for name in (QUERY_ID, BATCH_ID, RUN_ID)]
        if None in properties:
            raise UnsoundTokenError(
                "Spark does not provide the query and micro-batch of this task: set the option at_least_once"
            )
        query, batch, run = map(str, properties)
        content = Content(digest=run, run=run)
        sequence = sequence_of(target.connection, target.table, query, int(batch), content, harmless=True)
        return self._puts.send_all(iterator, Token(query, sequence * CHUNKS_MAX))
