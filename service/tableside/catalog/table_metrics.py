"""Counts and times the operations of callers, by table, operation and outcome, but never by key."""

from collections import Counter
from collections.abc import Mapping, Sequence

from prometheus_client import CollectorRegistry

from .. import telemetry
from ..core import (
    Delete,
    Get,
    Operation,
    Outcome,
    Put,
    Record,
    RecordColumns,
    TableError,
    Update,
    Written,
    WrittenColumn,
)
from ..core.concurrency import Pieces
from ..core.directions import count_reads
from ..telemetry import Histogram

BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

COUNTS = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000)

PIECE_OPERATIONS = 1000
"""How many operations are counted before other requests have a turn."""

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

    def many(self, operations: Sequence[Operation], outcomes: Sequence[Outcome], seconds: float) -> Pieces[None]:
        """Count a batch."""
        self._batch.observe(len(operations))
        counted: Mapping[tuple[str, str], int]
        if isinstance(outcomes, RecordColumns):
            absent = outcomes.absent_count
            counted = Counter({("get", "found"): len(outcomes) - absent, ("get", "absent"): absent})
        elif isinstance(outcomes, WrittenColumn):
            counted = {("put", "written"): len(outcomes)}
        elif len(operations) <= PIECE_OPERATIONS:
            counted = _counted(operations, outcomes)
        else:
            counted = yield from _counted_in_pieces(operations, outcomes)
        for (operation, outcome), count in counted.items():
            if count:
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


def _counted_in_pieces(
    operations: Sequence[Operation], outcomes: Sequence[Outcome]
) -> Pieces[Counter[tuple[str, str]]]:
    counted: Counter[tuple[str, str]] = Counter()
    for start in range(0, len(operations), PIECE_OPERATIONS):
        end = start + PIECE_OPERATIONS
        counted.update(_counted(operations[start:end], outcomes[start:end]))
        yield
    return counted


def _counted(operations: Sequence[Operation], outcomes: Sequence[Outcome]) -> dict[tuple[str, str], int]:
    count = len(operations)
    if count_reads(operations) == count and list(map(type, outcomes)).count(Record) == count:
        return {("get", "found"): count}
    counted: Counter[tuple[str, str]] = Counter()
    for (kind, outcome), count in Counter(zip(map(type, operations), map(type, outcomes), strict=True)).items():
        if outcome is Record or outcome is type(None):
            counted[_KINDS[kind], "found" if outcome is Record else "absent"] += count
        else:
            pairs = zip(operations, outcomes, strict=True)
            alike = [answer for one, answer in pairs if type(one) is kind and type(answer) is outcome]
            labelled = _without_plain_writes(alike)
            counted.update((_KINDS[kind], _label(answer)) for answer in labelled)
            if len(labelled) < count:
                counted[_KINDS[kind], "written"] += count - len(labelled)
    return counted


def _without_plain_writes(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Return the outcomes except the most common ones: writes that changed an existing record."""
    return [
        outcome
        for outcome in outcomes
        if not (
            type(outcome) is Written and outcome.partitions is None and not outcome.created and not outcome.replayed
        )
    ]


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
            return "replayed" if answer.replayed else "created" if answer.created else "written"
