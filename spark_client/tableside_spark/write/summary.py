"""The results of a write, and the totals of all writes of a `Table`."""

import threading
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.connect.streaming.query import StreamingQuery as ConnectStreamingQuery
    from pyspark.sql.streaming.query import StreamingQuery


@dataclass(frozen=True, slots=True)
class WriteSummary:
    """The result of a write, counted in rows of the DataFrame.

    Each row counts once, even if its task ran several times. A row for several partitions counts once for each. Every
    row is either applied, replayed, failed, dropped or unsent.

    Attributes:
        operations: The operations sent. Rows with one key may share an operation.
        sent: The rows sent to the service.
        applied: The rows applied by this write.
        replayed: The rows that had already been applied with the same token.
        failed: The rows that failed.
        dropped: The rows that belong to no partition.
        unsent: The rows that were not sent because their task had already failed.
        retried: The rows whose operation was sent more than once.
        waited_s: The time that tasks waited for retries, in seconds, summed over the tasks.
        seconds: The duration of the write, in seconds.
        batch_id: The number of the micro-batch, for a streaming query.
        failures: With `on_error="collect"`, one row for each failed row, with its `code` and `detail`.
    """

    operations: int
    sent: int
    applied: int
    replayed: int
    failed: int
    dropped: int
    unsent: int
    retried: int
    waited_s: float
    seconds: float
    batch_id: int | None = None
    failures: "DataFrame | None" = field(default=None, compare=False, repr=False)

    def counts(self) -> dict[str, Any]:
        """Return the counts as a dict."""
        return {name: getattr(self, name) for name in _COUNTERS}


@dataclass(frozen=True, slots=True)
class WriteStats:
    """The totals of all writes of a `Table` in this process, including failed ones. Counts as in `WriteSummary`."""

    writes: int = 0
    operations: int = 0
    sent: int = 0
    applied: int = 0
    replayed: int = 0
    failed: int = 0
    dropped: int = 0
    unsent: int = 0
    retried: int = 0
    waited_s: float = 0.0
    seconds: float = 0.0


_COUNTERS = tuple(number.name for number in fields(WriteStats) if number.name != "writes")


class WriteTotals:
    """Sums up write summaries. A copy sent to another process starts at zero."""

    def __init__(self) -> None:
        self._stats = WriteStats()
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return WriteTotals, ()

    def add(self, summary: WriteSummary) -> None:
        """Add one write."""
        with self._lock:
            before = asdict(self._stats)
            added = {name: before[name] + number for name, number in summary.counts().items()}
            self._stats = WriteStats(writes=before["writes"] + 1, **added)

    @property
    def stats(self) -> WriteStats:
        """The current totals."""
        return self._stats


BATCHES_MAX = 100
"""The maximum number of micro-batches kept."""

_COLUMNS = (
    "batch_id long, operations long, sent long, applied long, replayed long, failed long, dropped long, unsent long, "
    "retried long, waited_s double, seconds double"
)


def progress(query: "StreamingQuery | ConnectStreamingQuery") -> list[WriteSummary]:
    """Return the summaries of the last micro-batches of a query that writes to a table.

    Args:
        query: The query that `StreamWrite.start` returned.

    Returns:
        The summaries of up to 100 micro-batches of this run, the latest last. Empty before the first micro-batch.
    """
    from pyspark.errors import AnalysisException
    from pyspark.sql import SparkSession

    session = SparkSession.active()
    try:
        rows = session.table(_view_name(session, str(query.id))).orderBy("batch_id").collect()
    except AnalysisException:  # no micro-batch yet
        return []
    return [WriteSummary(**row.asDict()) for row in rows]


def publish(session: "SparkSession", query_id: str, summaries: Iterable[WriteSummary]) -> None:
    """Replace the summaries that `progress` returns."""
    rows = [(summary.batch_id, *summary.counts().values()) for summary in summaries]
    session.createDataFrame(rows, _COLUMNS).createOrReplaceGlobalTempView(_unqualified_view_name(query_id))


def _unqualified_view_name(query_id: str) -> str:
    return f"tableside_{query_id.replace('-', '_')}"


def _view_name(session: "SparkSession", query_id: str) -> str:
    return f"{session.conf.get('spark.sql.globalTempDatabase', 'global_temp')}.{_unqualified_view_name(query_id)}"
