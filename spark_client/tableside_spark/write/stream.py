"""Writes of streaming DataFrames: each micro-batch is one write, with a token made of query id and batch number."""

from collections import deque
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from tableside_spark.executor.operation_batch import PROBLEM, Token
from tableside_spark.plan.frames import is_remote
from tableside_spark.plan.grouping import Grouping
from tableside_spark.plan.rows import PreparedRows
from tableside_spark.write import job, micro_batch
from tableside_spark.write.job import WriteJob, WriteRun
from tableside_spark.write.progress import BATCHES_MAX, publish
from tableside_spark.write.summary import WriteSummary

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

OutputMode = Literal["append", "update"]


@dataclass(frozen=True, slots=True)
class StreamWrite:
    """A write of a streaming DataFrame that has not started. `Table.put`, `update` and `delete` return it."""

    rows: DataFrame
    grouping: Grouping
    write: WriteJob

    def __repr__(self) -> str:
        spec = self.write.spec
        keys = ", ".join(self.write.keys)
        return f"<{spec.op} of table {spec.table} by {keys}; not started: call start(checkpoint)>"

    def start(
        self, checkpoint: str, *, output_mode: OutputMode = "append", query_name: str | None = None, **trigger: Any
    ) -> "StreamingQuery":
        """Start the streaming query, or continue it from its checkpoint.

        Each change is applied once across restarts with one checkpoint: its token consists of the query's id, which is
        stored in the checkpoint, and the number of the micro-batch. A new checkpoint is a new query, whose changes are
        applied again.

        The query's progress contains observed metrics under the name `tableside_` and the table's name: `rows`, and
        `refused` for rows with a null key, a NaN or another invalid value. `tableside_spark.progress(query)` returns
        the results of the writes.

        Args:
            checkpoint: The checkpoint directory of the query.
            output_mode: `append` or `update`.
            query_name: The name of the query, as in `DataStreamWriter.queryName`.
            **trigger: A trigger as in `DataStreamWriter.trigger`: `processingTime="10 seconds"` or `availableNow=True`.

        Returns:
            The running query.

        Raises:
            ValueError: The output mode or the trigger is not supported.
        """
        if output_mode not in ("append", "update"):
            raise ValueError(
                f"output_mode must be append or update, not {output_mode!r}: complete sends all results each time. "
                "Write them inside foreachBatch"
            )
        if unknown := set(trigger) - {"processingTime", "once", "availableNow"}:
            raise ValueError(f"trigger {min(unknown)!r} is not supported: use processingTime or availableNow")
        observed = self.rows.observe(
            f"tableside_{self.write.spec.table}",
            F.count(F.lit(1)).alias("rows"),
            F.count_if(F.col(PROBLEM).isNotNull()).alias("refused"),
        )
        writer = observed.writeStream.foreachBatch(MicroBatchWriter(self.write, self.grouping, checkpoint).write_batch)
        writer = writer.outputMode(output_mode).option("checkpointLocation", checkpoint)
        writer = writer if query_name is None else writer.queryName(query_name)
        return (writer.trigger(**trigger) if trigger else writer).start()


@dataclass(slots=True)
class MicroBatchWriter:
    """Writes the micro-batches of one query, in the process that runs `foreachBatch`."""

    write: WriteJob
    grouping: Grouping
    checkpoint: str
    query_id: str | None = None
    summaries: "deque[WriteSummary]" = field(default_factory=lambda: deque(maxlen=BATCHES_MAX))

    def write_batch(self, rows: DataFrame, batch_id: int) -> None:
        """Write one micro-batch and publish its summary."""
        query_id = self._cached_query_id(rows)
        origin = Token(query_id, batch_id)
        token = None if self.write.spec.at_least_once else origin
        with self._table_lock(rows, token):
            summary = job.run(self.write, PreparedRows(rows, self.grouping), WriteRun(token, origin, batch_id))
        self.summaries.append(summary)
        publish(rows.sparkSession, query_id, self.summaries)

    def _table_lock(self, rows: DataFrame, token: Token | None) -> AbstractContextManager[None]:
        """Prevents a failure handler from writing the same table with the same token."""
        found = None if token is None or is_remote(rows) else micro_batch.current_micro_batch(rows)
        table = (self.write.spec.connection.url, self.write.spec.table)
        return nullcontext() if found is None else micro_batch.WRITE_LOCKS.exclusive(*found, table)

    def _cached_query_id(self, rows: DataFrame) -> str:
        if self.query_id is None:
            self.query_id = self._find_query_id(rows)
        return self.query_id

    def _find_query_id(self, rows: DataFrame) -> str:
        """The query's id: from the thread's local properties if they contain it, else from the checkpoint."""
        session = rows.sparkSession
        known = None if is_remote(rows) else session.sparkContext.getLocalProperty(micro_batch.QUERY_ID)
        return str(known) if known else micro_batch.query_id_of_checkpoint(self.checkpoint, session)
