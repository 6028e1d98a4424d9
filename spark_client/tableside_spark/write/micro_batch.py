"""Which micro-batch of which streaming query the driver is at, as far as Spark says so.

In classic PySpark, `foreachBatch` runs on a thread that has the query's id and the number of the micro-batch as local
properties; threads begun there have none, unless they are `pyspark.InheritableThread`s. Through Spark Connect there
is nothing, but the checkpoint's `metadata` holds the query's id.
"""

import json
import re
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tableside_spark.executor.operation_batch import Token
from tableside_spark.plan.frames import is_remote

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
_CONNECT_WORKER = "foreach_batch_worker"
_QUERIES_MAX = 1_000


class UnsoundTokenError(ValueError):
    """A write of a streaming query that nothing would recognise if the micro-batch ran again."""


def query_id_of_checkpoint(checkpoint: str, session: SparkSession) -> str:
    """The id of the query that this checkpoint belongs to, which a restart does not change."""
    exactly = re.sub(r"([\[\]{}*?\\])", r"\\\1", checkpoint.rstrip("/"))  # Spark reads paths as patterns
    [row] = session.read.text(f"{exactly}/metadata").collect()
    return str(json.loads(row["value"])["id"])


def current_micro_batch(frame: DataFrame) -> tuple[str, Token] | None:
    """The run and the token of the micro-batch that is being written; None outside of `foreachBatch`.

    Raises `UnsoundTokenError` where the frame is one of a streaming query, and nothing says which.
    """
    if is_remote(frame):
        if _in_connect_worker():
            raise UnsoundTokenError(
                _with_advice("through Spark Connect, foreachBatch does not say which query it is in")
            )
        return None
    context = frame.sparkSession.sparkContext
    query, batch = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
    if query is not None and batch is not None:
        return _run_id(frame.sparkSession, str(query)), Token(str(query), int(batch))
    if _is_from_streaming_query(frame):
        raise UnsoundTokenError(_with_advice("a thread begun in foreachBatch does not know the query"))
    return None


def _with_advice(why: str) -> str:
    return (
        f'{why}: give token=("a name that stays", batch_id), write in foreachBatch itself or in a '
        "pyspark.InheritableThread, or say at_least_once=True"
    )


def _in_connect_worker() -> bool:
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and str(spec.name).endswith(_CONNECT_WORKER)


def _is_from_streaming_query(frame: DataFrame) -> bool:
    """Whether the frame's session is the one that a running query has of its own."""
    session = frame._jdf.sparkSession()  # noqa: SLF001 - there is no other way to tell
    return any(query.sparkSessionForStream().equals(session) for query in _running_queries(frame.sparkSession))


def _run_id(session: SparkSession, query_id: str) -> str:
    """The run that a query is in; a job group would say it too, but for callers who set their own."""
    runs = [str(query.runId()) for query in _running_queries(session) if str(query.id()) == query_id]
    return runs[0] if runs else query_id


def _running_queries(session: SparkSession) -> Iterable[Any]:
    """The queries that run now, of all sessions; none where a Spark that is not Apache's own does not tell."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # classic PySpark alone has it, without types

    try:
        shared = session._jsparkSession.sharedState()  # noqa: SLF001 - there is no other way to tell
        running: Iterable[Any] = shared.activeStreamingQueries().values()
    except Py4JError:
        return ()
    return running


@dataclass(slots=True)
class _RunState:
    """The micro-batch that a run of a query is at, and the tables that are, or have been, written in it."""

    batch: int
    tables: set[str] = field(default_factory=set)


class WriteLocks:
    """Sees to it that a micro-batch writes a table once under one token: a second write would be taken for a replay."""

    def __init__(self) -> None:
        self._runs: dict[str, _RunState] = {}
        self._lock = threading.Lock()

    @contextmanager
    def exclusive(self, run: str, token: Token, table: str) -> Iterator[None]:
        """Write now; a write that fails may be tried again."""
        self._acquire(run, token, table)
        try:
            yield
        except BaseException:
            with self._lock:
                self._runs[run].tables.discard(table)
            raise

    def _acquire(self, run: str, token: Token, table: str) -> None:
        with self._lock:
            known = self._runs.pop(run, None)
            if known is not None and token.sequence < known.batch:
                self._runs[run] = known
                raise UnsoundTokenError(
                    _with_advice(f"a thread begun in micro-batch {token.sequence} writes in micro-batch {known.batch}")
                )
            at = known if known is not None and known.batch == token.sequence else _RunState(token.sequence)
            self._runs[run] = at  # the latest is the last
            while len(self._runs) > _QUERIES_MAX:
                del self._runs[next(iter(self._runs))]
            if table in at.tables:
                raise UnsoundTokenError(
                    f"table {table} is written a second time in micro-batch {token.sequence}: under the same token it "
                    'would be taken for a replay; give each write its own token=("a name that stays", batch_id)'
                )
            at.tables.add(table)


WRITE_LOCKS = WriteLocks()
"""Those of this process."""
