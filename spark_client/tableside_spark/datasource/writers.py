"""The executor side of data source writes: rows become puts."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from tableside_spark.datasource.options import TableOptions
from tableside_spark.executor.chunks import ChunkSize, chunks
from tableside_spark.executor.lookup_task import raise_first_failure
from tableside_spark.executor.operation_batch import Token
from tableside_spark.executor.task_client import TaskClient
from tableside_spark.plan.concurrency import concurrency

CHUNKS_MAX = 2**20
"""The maximum number of chunks per task of a micro-batch."""

IN_FLIGHT_MAX = 2
"""The maximum number of requests in flight per task."""

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
        client = TaskClient(self.target.connection, self.target.table, IN_FLIGHT_MAX)
        numbered = enumerate(chunks(rows, self._chunk_size()))
        sent = client.map(numbered, partial(self._put, client, first))
        return CommitMessage(sum(client.waits.logged(self.target.table, sent)))

    def _chunk_size(self) -> ChunkSize:
        requests = TASKS * IN_FLIGHT_MAX
        return concurrency(self.target.table_schema.limits, requests, requests, ChunkSize()).chunk

    def _put(self, client: TaskClient, first: Token | None, numbered: tuple[int, pa.RecordBatch]) -> int:
        number, chunk = numbered
        puts = self.encoder.encode(chunk)
        if first is not None:
            if number >= CHUNKS_MAX:
                raise ValueError(f"a task has more than {CHUNKS_MAX} chunks of rows: make micro-batches smaller")
            puts = _last_put_per_key(puts)
            sequence = pa.scalar(first.sequence + number, pa.int64())
            puts = puts.append_column("sequence", pa.repeat(sequence, len(puts)))
        writer = None if first is None else first.writer
        answer = client.batch(puts, op="put", writer=writer)
        raise_first_failure(self.target.table, answer)
        return int(chunk.num_rows)


class TableWriter(DataSourceArrowWriter):
    """Writes batches. Repeating a task is harmless: it puts the same rows again."""

    def __init__(self, puts: PutSender) -> None:
        self._puts = puts

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of a task. The first failed row ends the task."""
        return self._puts.send_all(iterator)


def _last_put_per_key(puts: pa.Table) -> pa.Table:
    """Keep only the last put of each key in a chunk: with one token, the first one would be stored."""
    last = {repr(key): position for position, key in enumerate(puts["key"].to_pylist())}
    return puts if len(last) == len(puts) else puts.take(sorted(last.values()))
