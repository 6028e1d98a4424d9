"""Metrics of tables: the operations of callers by outcome, but never by key, and the table's generations."""

import collections
from collections.abc import Sequence
from itertools import compress
from operator import attrgetter

from prometheus_client import CollectorRegistry, Gauge

from ..core import FLAGS, Batch, Delete, Get, Operation, Outcome, Put, Record, Results, TableError, Update, Written
from ..telemetry import Counter, Histogram
from .generations import STATES, Generation, Generations

BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

COUNTS = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000)

DROPPED = "dropped"
"""Outcome label of a write to no partition of a table."""

_FLAGS_OF = attrgetter(*FLAGS)

_KINDS: dict[type, str] = {Get: "get", Put: "put", Update: "update", Delete: "delete"}


class OperationMetrics:
    """The metrics that the tables of one catalog share."""

    def __init__(self, registry: CollectorRegistry) -> None:
        labels = ("table", "operation", "outcome")
        self.operations = Counter(
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
        self.dropped = Counter(
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
        self._children: dict[tuple[str, str], tuple[Counter, Histogram]] = {}

    def one(self, operation: Operation, outcome: Outcome, seconds: float) -> None:
        """Count a single operation."""
        self._count(_KINDS[type(operation)], _label(outcome), 1, seconds)

    def many(self, operations: Sequence[Operation], outcomes: Sequence[Outcome], seconds: float) -> None:
        """Count a batch."""
        self._batch.observe(len(operations))
        counted: collections.Counter[tuple[str, str]]
        if isinstance(operations, Batch) and isinstance(outcomes, Results):
            kind = _KINDS[operations.kind]
            counted = collections.Counter({(kind, label): count for label, count in _labels(outcomes).items()})
        else:
            pairs = zip(operations, outcomes, strict=True)
            counted = collections.Counter((_KINDS[type(operation)], _label(outcome)) for operation, outcome in pairs)
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


def _labels(results: Results) -> collections.Counter[str]:
    """Return how many outcomes have each label."""
    if results.kind is Written and not results.has_only("etag", "value", "expires_ms"):
        return collections.Counter(map(_label, results))
    counted = collections.Counter(error.code for error in results.failed.values())
    left = len(results) - len(results.failed)
    if results.kind is Record:
        counted["absent"] += (absent := results.absent_count)
        left -= absent
    counted["written" if results.kind is Written else "found"] += left
    return +counted


def _label(answer: Outcome) -> str:
    if answer is None:
        return "absent"
    if isinstance(answer, Record):
        return "found"
    if isinstance(answer, TableError):
        return answer.code
    if answer.partitions == ():
        return DROPPED
    return next(compress(FLAGS, _FLAGS_OF(answer)), "written")


REPLACED = "replaced"
DELETED = "deleted"
IDLE = "idle"


class GenerationMetrics:
    """The metrics that the tables of one catalog share. Every process sets the gauges to the same values."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(name, text, labels, registry=registry, multiprocess_mode="livemax")

        self._current = gauge("tableside_generation", "The number of a table's current generation.", "table")
        self._count = gauge("tableside_generations", "Generations of a table by their state.", "table", "state")
        self._loading_seconds = gauge(
            "tableside_generation_loading_seconds",
            "Time since the creation of the oldest generation that loads, 0 if none does.",
            "table",
        )
        self._idle_seconds = gauge(
            "tableside_generation_idle_seconds",
            "Time since the last noted write of the oldest generation that loads, 0 if none does.",
            "table",
        )
        self._activations = Counter(
            "tableside_generation_activations",
            "How often another generation of a table became current.",
            ("table",),
            registry=registry,
        )
        self._removals = Counter(
            "tableside_generation_removals",
            "Removed generations, by the reason: replaced (by an activation), deleted, idle (not written any more).",
            ("table", "reason"),
            registry=registry,
        )

    def show(self, table: str, generations: Generations, now_ms: int) -> None:
        """Set the gauges of a table."""
        oldest = next((one for one in generations.every if one.state == "loading"), None)
        self._set(table, generations.current.number, generations.every, oldest, now_ms)
        self._activations.labels(table)  # at 0 before the first one: a rate needs two values

    def hide(self, table: str) -> None:
        """Set the gauges of a table that was removed from the configuration to 0."""
        self._set(table, 0, (), None, 0)

    def count_activation(self, table: str) -> None:
        """Count that another generation became current."""
        self._activations.labels(table).inc()

    def count_removal(self, table: str, reason: str) -> None:
        """Count a removed generation."""
        self._removals.labels(table, reason).inc()

    def _set(
        self, table: str, current: int, every: tuple[Generation, ...], oldest: Generation | None, now_ms: int
    ) -> None:
        self._current.labels(table).set(current)
        for state in STATES:
            self._count.labels(table, state).set(sum(one.state == state for one in every))
        created_ms, written_ms = (now_ms, now_ms) if oldest is None else (oldest.created_ms, oldest.written_ms)
        self._loading_seconds.labels(table).set(max(0, now_ms - created_ms) / 1000)
        self._idle_seconds.labels(table).set(max(0, now_ms - written_ms) / 1000)
