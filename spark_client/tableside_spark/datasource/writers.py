"""The executor side of data source writes: rows become puts."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from tableside_spark.datasource.options import TableOptions
from tableside_spark.executor.chunks import ChunkSize, chunks
from tableside_spark.executor.lookup_task import raise_first_failure
from tableside_spark.executor.operation_batch import Token
from tableside_spark.executor.task_client import TaskClient, map_ordered
from tableside_spark.plan.concurrency import concurrency

CHUNKS_MAX = 2**20
"""The maximum number of chunks per task of a micro-batch."""

TASKS = 16
"""The number of concurrent tasks whose requests fit the service's limits. The real number is unknown here."""


@dataclass
class CommitMessage(WriterCommitMessage):
    """The number of rows written by a task."""

    rows: int


@dataclass(frozen=True)
class PutSender:
    """Sends chunks of rows as puts. The first failed row ends the task."""

    target: TableOptions
    encoder: Any

    def send_all(self, rows: Iterator[pa.RecordBatch], first: Token | None = None) -> CommitMessage:
        """Send the rows of a task. The sequence of a chunk is the sequence of `first` plus the chunk's number."""
        client = TaskClient(self.target.connection, self.target.table, 1)
        limits = self.target.table_schema.limits
        encoded = map_ordered(chunks(rows, concurrency(limits, TASKS, TASKS, ChunkSize()).chunk), self._encode, 2)
        # One request at a time, while the next chunk is encoded: two could apply the rows of a key in either order.
        sent = (self._send(client, number, first, *chunk) for number, chunk in enumerate(encoded))
        return CommitMessage(sum(client.waits.logged(self.target.table, sent)))

    def _encode(self, chunk: pa.RecordBatch) -> tuple[pa.Table, int]:
        return _last_put_per_key(self.encoder.encode(chunk)), chunk.num_rows

    def _send(self, client: TaskClient, number: int, first: Token | None, puts: pa.Table, rows: int) -> int:
        if first is not None:
            if number >= CHUNKS_MAX:
                raise ValueError(f"a task has more than {CHUNKS_MAX} chunks of rows: make micro-batches smaller")
            sequence = pa.scalar(first.sequence + number, pa.int64())
            puts = puts.append_column("sequence", pa.repeat(sequence, len(puts)))
        answer = client.batch(puts, op="put", writer=None if first is None else first.writer)
        raise_first_failure(self.target.table, answer)
        return rows


class TableWriter(DataSourceArrowWriter):
    """Writes batches. Repeating a task is harmless: it puts the same rows again."""

    def __init__(self, puts: PutSender) -> None:
        self._puts = puts

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of a task. The first failed row ends the task."""
        return self._puts.send_all(iterator)


def _last_put_per_key(puts: pa.Table) -> pa.Table:
    """Keep only the last put of each key, so that neither a token nor a retry of some puts changes the result."""
    identities = puts.drop_columns("value").to_pylist()
    last = {repr(identity): position for position, identity in enumerate(identities)}
    return puts if len(last) == len(puts) else puts.take(sorted(last.values()))
