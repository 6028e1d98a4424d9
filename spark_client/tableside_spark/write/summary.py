"""What became of a write, as the caller of a frame sees it, and of all the writes of a `Table`."""

import threading
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class WriteSummary:
    """Counts in rows of the caller's frame, each row once, however often a task ran.

    Every row is one of `applied`, `replayed` (it had been applied before under the same token), `failed`, `dropped`
    (it is for no partition) and `unsent` (its task had already failed). `sent` are those that left for the service,
    `retried` those that were asked more than once. `operations` were sent for them: rows with one key may share one.
    A row for several partitions counts once for each. `failures`, with `on_error="collect"`, holds the failed rows
    with `code` and `detail`. `batch_id` is the micro-batch's, of a streaming query.
    """

    operations: int
    sent: int
    applied: int
    replayed: int
    failed: int
    dropped: int
    unsent: int
    retried: int
    seconds: float
    batch_id: int | None = None
    failures: "DataFrame | None" = field(default=None, compare=False, repr=False)

    def counts(self) -> dict[str, Any]:
        """The numbers by their names."""
        return {name: getattr(self, name) for name in _NUMBERS}


class TableWriteError(Exception):
    """A write of a frame of which rows failed. `code` and `detail` are the first failure's.

    `failed` counts all failed rows, `alike` those that failed exactly as the first did; `summary` has the rest:
    rows that are not counted there as applied or replayed may be written again.
    """

    def __init__(self, table: str, code: str, detail: str, alike: int, summary: Any) -> None:
        self.table = table
        self.code = code
        self.detail = detail
        self.alike = alike
        self.failed: int = summary.failed
        self.summary = summary
        rows = "1 row" if self.failed == 1 else f"{self.failed} rows"
        super().__init__(f"table {table}: {rows} failed; the first: {code}: {detail} ({alike} like it)")


@dataclass(frozen=True, slots=True)
class WriteStats:
    """The sums over all writes of a `Table` in this process, failed ones included; numbers as in `WriteSummary`."""

    writes: int = 0
    operations: int = 0
    sent: int = 0
    applied: int = 0
    replayed: int = 0
    failed: int = 0
    dropped: int = 0
    unsent: int = 0
    retried: int = 0
    seconds: float = 0.0


_NUMBERS = tuple(number.name for number in fields(WriteStats) if number.name != "writes")


class Totals:
    """Adds summaries up. A copy that travels to another process begins anew there."""

    def __init__(self) -> None:
        self._stats = WriteStats()
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return Totals, ()

    def add(self, summary: WriteSummary) -> None:
        """Count one write."""
        with self._lock:
            before = asdict(self._stats)
            added = {name: before[name] + number for name, number in summary.counts().items()}
            self._stats = WriteStats(writes=before["writes"] + 1, **added)

    @property
    def stats(self) -> WriteStats:
        """The sums until now."""
        return self._stats
