"""The results of a write: its summary, the error for failed rows, totals, and the progress of streaming queries."""

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from tableside_client.errors import counts_text, key_json
from tableside_spark.executor.operation_batch import ROWS
from tableside_spark.executor.write_task import CODE, DETAIL

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.connect.streaming.query import StreamingQuery as ConnectStreamingQuery
    from pyspark.sql.streaming.query import StreamingQuery


@dataclass(frozen=True, slots=True)
class WriteCounts:
    """What writes and their totals count. `WriteSummary` describes the attributes."""

    operations: int = 0
    sent: int = 0
    applied: int = 0
    replayed: int = 0
    superseded: int = 0
    failed: int = 0
    dropped: int = 0
    unsent: int = 0
    retried: int = 0
    waited_s: float = 0.0
    seconds: float = 0.0

    def counts(self) -> dict[str, Any]:
        """Return the counts as a dict."""
        return {counter.name: getattr(self, counter.name) for counter in fields(WriteCounts)}


@dataclass(frozen=True, slots=True)
class WriteSummary(WriteCounts):
    """The result of a write, counted in rows of the DataFrame.

    Each row counts once, even if its task ran several times. A row for several partitions counts once for each. Every
    row is either applied, replayed, superseded, failed, dropped or unsent.

    Attributes:
        operations: The operations sent. Rows with one key may share an operation.
        sent: The rows sent to the service.
        applied: The rows applied by this write.
        replayed: The rows that had already been applied with the same token.
        superseded: The rows of ordered writes that changed nothing, because their records have newer data.
        failed: The rows that failed.
        dropped: The rows that belong to no partition.
        unsent: The rows that were not sent because their task had already failed.
        retried: The rows whose operation was sent more than once.
        waited_s: The time that tasks waited for retries, in seconds, summed over the tasks.
        seconds: The duration of the write, in seconds.
        batch_id: The number of the micro-batch, for a streaming query.
        failures: With `on_error="collect"`, one row for each failed row, with its `code` and `detail`.
        finished_before: The run with this token had finished before. Nothing was sent, and all counts are 0.
    """

    batch_id: int | None = None
    finished_before: bool = False
    failures: "DataFrame | None" = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class WriteStats(WriteCounts):
    """The totals of all writes of a `Table` in this process, including failed ones. Counts as in `WriteSummary`."""

    writes: int = 0


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
            added = {name: getattr(self._stats, name) + number for name, number in summary.counts().items()}
            self._stats = WriteStats(writes=self._stats.writes + 1, **added)

    @property
    def stats(self) -> WriteStats:
        """The current totals."""
        return self._stats


BATCHES_MAX = 100

_COLUMNS = (
    "batch_id long, operations long, sent long, applied long, replayed long, superseded long, failed long, "
    "dropped long, unsent long, retried long, waited_s double, seconds double"
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
        database = session.conf.get("spark.sql.globalTempDatabase", "global_temp")
        rows = session.table(f"{database}.{_view_name(str(query.id))}").orderBy("batch_id").collect()
    except AnalysisException:  # no micro-batch yet
        return []
    return [WriteSummary(**row.asDict()) for row in rows]


def publish(session: "SparkSession", query_id: str, summaries: Iterable[WriteSummary]) -> None:
    """Replace the summaries that `progress` returns."""
    rows = [(summary.batch_id, *summary.counts().values()) for summary in summaries]
    session.createDataFrame(rows, _COLUMNS).createOrReplaceGlobalTempView(_view_name(query_id))


def _view_name(query_id: str) -> str:
    return f"tableside_{query_id.replace('-', '_')}"


_PARTLY_APPLIED = "Part of the write may have been applied"
_ADVICE = (
    'To make running a write again harmless, give each run a different token, such as token="load/2026-11-20": a '
    "finished run is not sent again, and one that failed applies only the rows that were not applied."
)


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Rows that failed for the same reason: the code, the detail, the number of rows, and the first key as JSON."""

    code: str
    detail: str
    rows: int
    key: str


class TableWriteError(Exception):
    """A write with failed rows.

    Attributes:
        table: The name of the table.
        code: The most frequent problem code.
        detail: The most frequent cause with this code, in words.
        alike: The number of rows that failed with this code and detail.
        key: The key of the first of these rows, as JSON.
        counts: The number of failed rows by code, the most frequent first.
        failed: The number of all failed rows.
        summary: The `WriteSummary`. Rows that it does not count as applied or replayed may be written again.
    """

    def __init__(
        self, table: str, groups: Sequence[FailureGroup], summary: WriteSummary, *, is_repeatable: bool = True
    ) -> None:
        self.table = table
        rows: Counter[str] = Counter()
        for group in groups:
            rows[group.code] += group.rows
        self.counts = dict(rows.most_common())
        first = max((group for group in groups if group.code == next(iter(self.counts))), key=lambda group: group.rows)
        self.code, self.detail, self.alike, self.key = first.code, first.detail, first.rows, first.key
        self.failed = summary.failed
        self.summary = summary
        message = f"table {table}: {counts_text(self.counts)}; the first has the key {self.key}: {self.detail}"
        applied = f"{_PARTLY_APPLIED}: {summary.applied} rows were applied, {summary.unsent} were not sent."
        super().__init__(message if is_repeatable else f"{message}. {applied} {_ADVICE}")


class RunRefusedError(ValueError):
    """A run is not sent: its token belongs to another write, or its records may have forgotten it."""


def failure_groups(outcomes: Iterable[Mapping[str, Any]], keys: Sequence[str]) -> list[FailureGroup]:
    """Return the failures among outcome rows, by code and detail. Each outcome has the key of its first row."""
    groups: dict[tuple[str, str], FailureGroup] = {}
    for row in outcomes:
        if row[CODE] is not None:
            reason = (row[CODE], row[DETAIL] or "")
            before = groups.get(reason)
            parts = [row[name] for name in keys]
            short = key_json(parts[0] if len(parts) == 1 else parts)
            rows, key = (0, short) if before is None else (before.rows, before.key)
            groups[reason] = FailureGroup(*reason, rows + row[ROWS], key)
    return list(groups.values())


@contextmanager
def rerun_advice(*, is_repeatable: bool) -> Iterator[None]:
    """Add a note to errors of a write that must not be run again without care."""
    try:
        yield
    except TableWriteError:
        raise
    except Exception as error:
        if not is_repeatable:
            error.add_note(f"{_PARTLY_APPLIED}. {_ADVICE}")
        raise
