"""What each micro-batch of a streaming write did, where a program can read it, classic or through Spark Connect.

The writes run on the driver, or in a process of the Connect server: both can make a global temporary view, which
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
"""How many of the last micro-batches are kept."""

_COLUMNS = (
    "batch_id long, operations long, sent long, applied long, replayed long, failed long, dropped long, unsent long, "
    "retried long, seconds double"
)


def progress(query: "StreamingQuery | ConnectStreamingQuery") -> list[WriteSummary]:
    """What the last micro-batches of a query that writes a table did, the latest last; of this run of the query."""
    from pyspark.errors import AnalysisException
    from pyspark.sql import SparkSession

    session = SparkSession.active()
    try:
        rows = session.table(_place(session, str(query.id))).orderBy("batch_id").collect()
    except AnalysisException:  # no micro-batch yet
        return []
    return [WriteSummary(**row.asDict()) for row in rows]


def publish(session: "SparkSession", query_id: str, summaries: Iterable[WriteSummary]) -> None:
    """Replace what `progress` finds."""
    rows = [(summary.batch_id, *summary.counts().values()) for summary in summaries]
    session.createDataFrame(rows, _COLUMNS).createOrReplaceGlobalTempView(_name(query_id))


def _name(query_id: str) -> str:
    return f"tableside_{query_id.replace('-', '_')}"


def _place(session: "SparkSession", query_id: str) -> str:
    return f"{session.conf.get('spark.sql.globalTempDatabase', 'global_temp')}.{_name(query_id)}"
