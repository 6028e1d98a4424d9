"""What became of a write, as the caller of a frame sees it."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class WriteSummary:
    """Counts in rows of the caller's frame, each row once, however often a task ran.

    Every row is one of `applied`, `replayed` (it had been applied before under the same token), `failed` and
    `dropped` (never sent, because its partition had already failed). `sent` are those that left for the
    service, `retried` those that were asked more than once. `operations` were sent for them: rows with one key
    may share one. `failures`, with `on_error="collect"`, holds the failed rows with `code` and `detail`.
    """

    operations: int
    sent: int
    applied: int
    replayed: int
    failed: int
    dropped: int
    retried: int
    seconds: float
    failures: "DataFrame | None" = field(default=None, compare=False, repr=False)
