"""The token of a write: given by the caller, from the current micro-batch, or generated.

In classic PySpark, `foreachBatch` runs on a thread with the query's id and the number of the micro-batch as local
properties. Threads started there do not have them, unless they are `pyspark.InheritableThread`s. Spark Connect provides
neither, but the checkpoint's file `metadata` contains the query's id.
"""

import re
import sys
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tableside_client import json_batch
from tableside_client.json_batch import TokenArgument
from tableside_spark.executor.operation_batch import PART, RESET, Token
from tableside_spark.executor.task_client import Connection
from tableside_spark.plan.frames import is_remote
from tableside_spark.write.query_memory import Checkpoint, Content, sequence_of

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
_CONNECT_WORKER = "foreach_batch_worker"
_QUERIES_MAX = 1_000


class UnsoundTokenError(ValueError):
    """A streaming write without a token that would identify it if the micro-batch ran again."""


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """A micro-batch: its query's id, its number, and, if Spark provides them, the query's run and checkpoint."""

    query: str
    number: int
    run: str | None = None
    checkpoint: Checkpoint | None = None


def current_micro_batch(frame: DataFrame) -> MicroBatch | None:
    """Return the current micro-batch, None outside of `foreachBatch`. Raises `UnsoundTokenError` if unclear."""
    if is_remote(frame):
        spec = getattr(sys.modules["__main__"], "__spec__", None)
        if spec is not None and str(spec.name).endswith(_CONNECT_WORKER):
            raise UnsoundTokenError(_with_advice("Spark Connect does not provide the query's id in foreachBatch"))
        return None
    session = frame.sparkSession
    query, batch = (session.sparkContext.getLocalProperty(name) for name in (QUERY_ID, BATCH_ID))
    if query is not None and batch is not None:
        # A job group would contain the run, but callers may set their own.
        for running in _running_queries(session):
            if str(running.id()) == query:
                checkpoint = Checkpoint(str(running.resolvedCheckpointRoot()), session)
                return MicroBatch(query, int(batch), str(running.runId()), checkpoint)
        return MicroBatch(query, int(batch), run=query)
    private = frame._jdf.sparkSession()  # noqa: SLF001 - there is no other way to tell
    if any(running.sparkSessionForStream().equals(private) for running in _running_queries(session)):
        raise UnsoundTokenError(_with_advice("a thread started in foreachBatch does not have the query's id"))
    return None


def _with_advice(why: str) -> str:
    return (
        f'{why}: give token=("a stable name", batch_id), write in foreachBatch itself or in a '
        "pyspark.InheritableThread, or set at_least_once=True"
    )


def _running_queries(session: SparkSession) -> Iterable[Any]:
    """Return the running queries of all sessions, or none if a Spark distribution does not provide them."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # classic PySpark alone has it, without types

    try:
        shared = session._jsparkSession.sharedState()  # noqa: SLF001 - there is no other way to tell
        running: Iterable[Any] = shared.activeStreamingQueries().values()
    except Py4JError:
        return ()
    return running


@dataclass(slots=True)
class _RunState:
    """The current micro-batch of a run, and the tables that are being, or have been, written in it, as URL and name."""

    batch: int
    tables: set[tuple[str, str]] = field(default_factory=set)


class WriteLocks:
    """Ensures that a micro-batch writes a table once per token: a second write would count as a replay."""

    def __init__(self) -> None:
        self._runs: dict[str, _RunState] = {}
        self._lock = threading.Lock()

    @contextmanager
    def exclusive(self, run: str, number: int, table: tuple[str, str]) -> Iterator[None]:
        """Keep a table, given as URL and name, locked during a write. After a failure, the write may be repeated."""
        with self._lock:
            state = self._runs.pop(run, None)
            if state is not None and number < state.batch:
                self._runs[run] = state
                raise UnsoundTokenError(
                    _with_advice(f"a thread started in micro-batch {number} writes in micro-batch {state.batch}")
                )
            current = state if state is not None and state.batch == number else _RunState(number)
            self._runs[run] = current  # the most recently used run is last
            while len(self._runs) > _QUERIES_MAX:
                del self._runs[next(iter(self._runs))]
            if table in current.tables:
                raise UnsoundTokenError(
                    f"table {table[1]} is written a second time in micro-batch {number}: under the same token "
                    'it would count as a replay; give each write its own token=("a stable name", batch_id)'
                )
            current.tables.add(table)
        try:
            yield
        except BaseException:
            with self._lock:
                self._runs[run].tables.discard(table)
            raise


WRITE_LOCKS = WriteLocks()


WRITER_CHARACTERS_MAX = json_batch.WRITER_CHARACTERS_MAX - len(RESET)
_RESERVED = re.compile(rf"({RESET}|{PART}[0-9a-f]{{5}})$")


@dataclass(frozen=True, slots=True)
class TokenLease:
    """The token of a write, the lock to hold during the write, and whether another run has the same token."""

    token: Token | None = None
    hold: Callable[[], AbstractContextManager[None]] = nullcontext
    is_repeatable: bool = False


def parse_token(given: TokenArgument) -> Token | None:
    """Validate a token argument. The sequence of a text is 0."""
    token = json_batch.parse_token((given, 0) if isinstance(given, str) else given)
    if token is None:
        return None
    writer, _ = token
    if len(writer) > WRITER_CHARACTERS_MAX:
        raise ValueError(f"the writer of a token is a string of 1 to {WRITER_CHARACTERS_MAX} characters")
    if _RESERVED.search(writer):
        raise ValueError(
            f"the writer of a token does not end with {RESET}, or with {PART} and five hexadecimal digits: "
            "these suffixes are reserved for writers that are derived from it"
        )
    return Token(*token)


def acquire_token(
    frame: DataFrame, connection: Connection, table: str, given: TokenArgument, *, generate: bool, harmless: bool
) -> TokenLease:
    """Return the token of a batch write: the caller's, else the micro-batch's, else, with `generate`, a new one."""
    token = parse_token(given)
    if token is not None:
        return TokenLease(token, is_repeatable=True)
    if (batch := current_micro_batch(frame)) is not None:
        return micro_batch_token(batch, connection, table, harmless=harmless)
    return TokenLease(Token(f"spark-{uuid.uuid4()}", 0) if generate else None)


def micro_batch_token(batch: MicroBatch, connection: Connection, table: str, *, harmless: bool) -> TokenLease:
    """Return the token of a micro-batch: the query and a sequence. `harmless` rows may be applied again."""
    content = Content() if batch.checkpoint is None else batch.checkpoint.content(batch.number)
    sequence = sequence_of(connection, table, batch.query, batch.number, content, harmless=harmless)
    run, number, place = batch.run, batch.number, (connection.url, table)
    hold = nullcontext if run is None else lambda: WRITE_LOCKS.exclusive(run, number, place)
    return TokenLease(Token(batch.query, sequence), hold, is_repeatable=True)
