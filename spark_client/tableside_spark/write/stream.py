"""A streaming frame written to a table: each micro-batch is one write, whose token is the query and the micro-batch."""

from collections import deque
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from tableside_spark.executor.operation_batch import PROBLEM, Token
from tableside_spark.plan.frames import is_remote
from tableside_spark.plan.grouping import Grouping
from tableside_spark.write import job, micro_batch
from tableside_spark.write.job import WriteJob
from tableside_spark.write.progress import BATCHES_MAX, publish
from tableside_spark.write.summary import WriteSummary

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

OutputMode = Literal["append", "update"]


@dataclass(frozen=True, slots=True)
class StreamWrite:
    """A write of a streaming frame that waits to be started."""

    rows: DataFrame = field(repr=False)
    grouping: Grouping = field(repr=False)
    write: WriteJob = field(repr=False)

    def start(
        self, checkpoint: str, *, output_mode: OutputMode = "append", query_name: str | None = None, **trigger: Any
    ) -> "StreamingQuery":
        """Begin, or go on where `checkpoint` says that this query stopped; return the running query.

        `trigger` is as in `DataStreamWriter.trigger`: `processingTime="10 seconds"`, `availableNow=True`. Every change
        counts once over restarts of one checkpoint: its tokens have the query's id, which the checkpoint holds, and
        the micro-batch's number. With a new checkpoint the query is another one, and what it reads counts again.

        The progress has the observed metrics `rows` and `refused` (rows with a null key, a NaN, …) under
        `tableside_` and the table's name; `tableside_spark.progress(query)` has what became of them.
        """
        if output_mode not in ("append", "update"):
            raise ValueError(
                f"output_mode is append or update, not {output_mode!r}: complete sends all results each time; "
                "write them inside foreachBatch"
            )
        if unknown := set(trigger) - {"processingTime", "once", "availableNow"}:
            raise ValueError(f"a write has micro-batches: no trigger of the kind {min(unknown)}")
        observed = self.rows.observe(
            f"tableside_{self.write.spec.table}",
            F.count(F.lit(1)).alias("rows"),
            F.count_if(F.col(PROBLEM).isNotNull()).alias("refused"),
        )
        writer = observed.writeStream.foreachBatch(Sink(self.write, self.grouping, checkpoint).write_batch)
        writer = writer.outputMode(output_mode).option("checkpointLocation", checkpoint)
        writer = writer if query_name is None else writer.queryName(query_name)
        return (writer.trigger(**trigger) if trigger else writer).start()


@dataclass(slots=True)
class Sink:
    """Writes the micro-batches of one query, in the process where Spark runs `foreachBatch`."""

    write: WriteJob
    grouping: Grouping
    checkpoint: str
    query_id: str | None = None
    summaries: "deque[WriteSummary]" = field(default_factory=lambda: deque(maxlen=BATCHES_MAX))

    def write_batch(self, rows: DataFrame, batch_id: int) -> None:
        """Write one micro-batch, and say what became of it."""
        query_id = self._query(rows)
        token = None if self.write.spec.at_least_once else Token(query_id, batch_id)
        with self._held(rows, token):
            summary = job.run(self.write, self.grouping(rows), token, batch_id)
        self.summaries.append(summary)
        publish(rows.sparkSession, query_id, self.summaries)

    def _held(self, rows: DataFrame, token: Token | None) -> AbstractContextManager[None]:
        """What keeps a handler of failures from writing the same table under the same token."""
        found = None if token is None or is_remote(rows) else micro_batch.current(rows)
        return nullcontext() if found is None else micro_batch.WRITES.one(*found, self.write.spec.table)

    def _query(self, rows: DataFrame) -> str:
        if self.query_id is None:
            self.query_id = self._found(rows)
        return self.query_id

    def _found(self, rows: DataFrame) -> str:
        """The query's id, from the thread where that has it, else from the checkpoint."""
        session = rows.sparkSession
        known = None if is_remote(rows) else session.sparkContext.getLocalProperty(micro_batch.QUERY_ID)
        return str(known) if known else micro_batch.query_id_in(self.checkpoint, session)
