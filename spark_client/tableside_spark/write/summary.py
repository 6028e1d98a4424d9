"""The results of a write, and the totals of all writes of a `Table`."""

import threading
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


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
