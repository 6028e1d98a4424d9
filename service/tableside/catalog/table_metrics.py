"""Counts and times the operations of callers, by table, operation and outcome, but never by key."""

from collections import Counter
from collections.abc import Sequence

from prometheus_client import CollectorRegistry

from .. import telemetry
from ..core import FLAGS, Batch, Delete, Get, Operation, Outcome, Put, Record, Results, TableError, Update, Written
from ..telemetry import Histogram

BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

COUNTS = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000)

DROPPED = "dropped"
"""Outcome label of a write to no partition of a table."""

_KINDS: dict[type, str] = {Get: "get", Put: "put", Update: "update", Delete: "delete"}


class OperationMetrics:
    """The metrics that the tables of one catalog share."""

    def __init__(self, registry: CollectorRegistry) -> None:
        labels = ("table", "operation", "outcome")
        self.operations = telemetry.Counter(
            "tableside_operations",
            "Operations, scans and splits by outcome; an update's created is a default that was inserted.",
            labels,
            registry=registry,
        )
        self.seconds = Histogram(
            "tableside_operation_duration_seconds",
            "Time that an operation took, failures included; observed once per request, operation and outcome.",
            labels,
            buckets=BUCKETS_S,
            registry=registry,
        )
        self.batch = Histogram(
            "tableside_batch_operations",
            "Operations in one batch of a caller.",
            ("table",),
            buckets=COUNTS,
            registry=registry,
        )
        self.dropped = telemetry.Counter(
            "tableside_dropped_records",
            "Writes that were acknowledged and went to no partition, as their callers asked.",
            ("table",),
            registry=registry,
        )


class TableMetrics:
    """The operation metrics of one table."""

    def __init__(self, metrics: OperationMetrics, table: str) -> None:
        self._metrics = metrics
        self._table = table
        self._batch = metrics.batch.labels(table)
        self._children: dict[tuple[str, str], tuple[telemetry.Counter, Histogram]] = {}

    def one(self, operation: Operation, outcome: Outcome, seconds: float) -> None:
        """Count a single operation."""
        self._count(_KINDS[type(operation)], _label(outcome), 1, seconds)

    def many(self, operations: Sequence[Operation], outcomes: Sequence[Outcome], seconds: float) -> None:
        """Count a batch."""
        self._batch.observe(len(operations))
        counted: Counter[tuple[str, str]]
        if isinstance(operations, Batch) and isinstance(outcomes, Results):
            kind = _KINDS[operations.kind]
            counted = Counter({(kind, label): count for label, count in _labels(outcomes).items()})
        else:
            pairs = zip(operations, outcomes, strict=True)
            counted = Counter((_KINDS[type(operation)], _label(outcome)) for operation, outcome in pairs)
        for (operation, outcome), count in counted.items():
            self._count(operation, outcome, count, seconds)

    def scanned(self, kind: str, error: TableError | None, seconds: float) -> None:
        """Count a page of a scan, or a request for splits."""
        self._count(kind, "found" if error is None else error.code, 1, seconds)

    def _count(self, operation: str, outcome: str, count: int, seconds: float) -> None:
        # A lookup by labels costs more than counting.
        if (child := self._children.get((operation, outcome))) is None:
            labels = (self._table, operation, outcome)
            child = (self._metrics.operations.labels(*labels), self._metrics.seconds.labels(*labels))
            self._children[operation, outcome] = child
        if outcome == DROPPED:
            self._metrics.dropped.labels(self._table).inc(count)
        child[0].inc(count)
        child[1].observe(seconds)


def _labels(results: Results) -> Counter[str]:
    """Return how many outcomes have each label."""
    if results.kind is Written and not results.has_only("etag", "value", "expires_ms"):
        return Counter(map(_label, results))
    counted = Counter(error.code for error in results.failed.values())
    left = len(results) - len(results.failed)
    if results.kind is Record:
        counted["absent"] += (absent := results.absent_count)
        left -= absent
    counted["written" if results.kind is Written else "found"] += left
    return +counted


def _label(answer: Outcome) -> str:
    match answer:
        case Record():
            return "found"
        case None:
            return "absent"
        case TableError():
            return answer.code
        case Written(partitions=()):
            return DROPPED
        case Written():
            for flag in FLAGS:
                if getattr(answer, flag):
                    return flag
            return "written"
