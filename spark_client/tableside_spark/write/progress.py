"""The summaries of a streaming query's micro-batches, for classic PySpark and Spark Connect.

The writes run on the driver, or in a process of the Connect server. Both can create a global temporary view, which
every session of the application can read.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tableside_spark.write.summary import WriteSummary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.streaming.query import StreamingQuery as ConnectStreamingQuery
    from pyspark.sql.streaming.query import StreamingQuery

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
