"""Writes of streaming DataFrames: each micro-batch is one write, with a token made of query id and batch number."""

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from pyspark.sql import DataFrame, functions as F

from tableside_spark.executor.operation_batch import PROBLEM, Token
from tableside_spark.plan.frames import is_remote
from tableside_spark.plan.grouping import Grouping
from tableside_spark.plan.rows import PreparedRows
from tableside_spark.write import job
from tableside_spark.write.job import WriteJob, WriteRun
from tableside_spark.write.query_memory import Checkpoint
from tableside_spark.write.summary import BATCHES_MAX, WriteSummary, publish
from tableside_spark.write.tokens import MicroBatch, TokenLease, current_micro_batch, micro_batch_token

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
        applied again. If an older checkpoint brings a number back with other rows, they are applied if that is
        harmless, as for puts. Otherwise the query ends with `MicroBatchChangedError`.

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
        spec = self.write.spec
        batch = None if is_remote(rows) else current_micro_batch(rows)
        if batch is None:  # The thread's local properties do not contain it, but the checkpoint has the query's id.
            checkpoint = Checkpoint(self.checkpoint, rows.sparkSession)
            self.query_id = self.query_id or checkpoint.query_id()
            batch = MicroBatch(self.query_id, batch_id, checkpoint=checkpoint)
        origin = Token(batch.query, batch_id)
        lease = TokenLease()
        if not spec.at_least_once:
            lease = micro_batch_token(batch, spec.connection, spec.table, harmless=self.write.harmless)
        with lease.hold():  # A failure handler must not write the same table with the same token.
            summary = job.run(self.write, PreparedRows(rows, self.grouping), WriteRun(lease.token, origin, batch_id))
        self.summaries.append(summary)
        publish(rows.sparkSession, batch.query, self.summaries)
