"""Metrics of tables: the operations of callers by outcome, but never by key, and the table's generations."""

import collections
from collections.abc import Sequence
from itertools import compress
from operator import attrgetter
from typing import Any

from prometheus_client import CollectorRegistry, Gauge

from ..core import FLAGS, Batch, Delete, Get, Operation, Outcome, Put, Record, Results, TableError, Update, Written
from ..policies import PolicyMetrics
from ..telemetry import Counter, Histogram
from .generations import STATES, Generations

BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

COUNTS = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000)

DROPPED = "dropped"
"""Outcome label of a write to no partition of a table."""

_FLAGS_OF = attrgetter(*FLAGS)

_KINDS: dict[type, str] = {Get: "get", Put: "put", Update: "update", Delete: "delete"}


class CatalogMetrics:
    """The metrics that the tables and stores of one catalog share. All processes set generations to the same values."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(name, text, labels, registry=registry)

        def histogram(name: str, text: str, buckets: Sequence[float], *labels: str) -> Histogram:
            return Histogram(name, text, labels, buckets=buckets, registry=registry)

        def gauge(name: str, text: str, *labels: str, workers: Any = "livemax") -> Gauge:
            return Gauge(name, text, labels, registry=registry, multiprocess_mode=workers)

        self.policies = PolicyMetrics(registry)
        self.operations = counter(
            "tableside_operations",
            "Operations, scans and splits by outcome; an update's created is a default that was inserted.",
            *("table", "operation", "outcome"),
        )
        self.operation_seconds = histogram(
            "tableside_operation_duration_seconds",
            "Time that an operation took, failures included; observed once per request, operation and outcome.",
            BUCKETS_S,
            *("table", "operation", "outcome"),
        )
        self.batch_operations = histogram(
            "tableside_batch_operations", "Operations in one batch of a caller.", COUNTS, "table"
        )
        self.dropped = counter(
            "tableside_dropped_records",
            "Writes that were acknowledged and went to no partition, as their callers asked.",
            "table",
        )
        self.connections = gauge(
            "tableside_store_connections",
            "Connections of a store: in use (including those being opened), open, and the limit (most).",
            *("store", "state"),
            workers="livesum",
        )
        self.disk = gauge(
            "tableside_store_disk_bytes",
            "A store's local disk: files (used), compaction_pending, and the free bytes and size of the file system.",
            *("store", "state"),
        )
        self.writes_delayed = gauge(
            "tableside_store_writes_delayed",
            "1 while a store slows writes down or stops them until compaction catches up, else 0.",
            "store",
        )
        self.reachable = gauge(
            "tableside_store_reachable",
            "1 if the last check of a store, at least every 10 seconds, reached it, else 0.",
            "store",
            workers="livemin",
        )
        self._generation = gauge("tableside_generation", "The number of a table's current generation.", "table")
        self._generations = gauge(
            "tableside_generations", "Generations of a table by their state.", *("table", "state")
        )
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
        self.activations = counter(
            "tableside_generation_activations", "How often another generation of a table became current.", "table"
        )
        self.removals = counter(
            "tableside_generation_removals",
            "Removed generations, by the reason: replaced (by an activation), deleted, idle (not written any more).",
            *("table", "reason"),
        )

    def show_generations(self, table: str, generations: Generations | None, now_ms: int = 0) -> None:
        """Set the gauges of a table's generations, to 0 if it was removed from the configuration."""
        every = () if generations is None else generations.every
        oldest = next((one for one in every if one.state == "loading"), None)
        created_ms, written_ms = (now_ms, now_ms) if oldest is None else (oldest.created_ms, oldest.written_ms)
        self._generation.labels(table).set(0 if generations is None else generations.current.number)
        for state in STATES:
            self._generations.labels(table, state).set(sum(one.state == state for one in every))
        self._loading_seconds.labels(table).set(max(0, now_ms - created_ms) / 1000)
        self._idle_seconds.labels(table).set(max(0, now_ms - written_ms) / 1000)
        self.activations.labels(table)  # at 0 before the first one: a rate needs two values


class TableMetrics:
    """The operation metrics of one table."""

    def __init__(self, metrics: CatalogMetrics, table: str) -> None:
        self._metrics = metrics
        self._table = table
        self._batch = metrics.batch_operations.labels(table)
        self._children: dict[tuple[str, str], tuple[Counter, Histogram]] = {}

    def one(self, operation: Operation, outcome: Outcome, seconds: float) -> None:
        """Count a single operation."""
        self._count(_KINDS[type(operation)], _label(outcome), 1, seconds)

    def many(self, operations: Sequence[Operation], outcomes: Sequence[Outcome], seconds: float) -> None:
        """Count a batch."""
        self._batch.observe(len(operations))
        if isinstance(operations, Batch) and isinstance(outcomes, Results):
            counted = {(operations.kind, label): count for label, count in _labels(outcomes).items()}
        else:
            counted = collections.Counter(zip(map(type, operations), map(_label, outcomes), strict=True))
        for (kind, label), count in counted.items():
            self._count(_KINDS[kind], label, count, seconds)

    def scanned(self, kind: str, error: TableError | None, seconds: float) -> None:
        """Count a page of a scan, or a request for splits."""
        self._count(kind, "found" if error is None else error.code, 1, seconds)

    def _count(self, operation: str, outcome: str, count: int, seconds: float) -> None:
        # A lookup by labels costs more than counting.
        if (child := self._children.get((operation, outcome))) is None:
            labels = (self._table, operation, outcome)
            child = (self._metrics.operations.labels(*labels), self._metrics.operation_seconds.labels(*labels))
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
        counted["absent"] += (absent := len(results.absent))
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
