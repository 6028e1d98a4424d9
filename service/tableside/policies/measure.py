"""Counts operations and times calls, by table, operation and outcome; never by key."""

import math
import time
from collections import Counter
from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client import Counter as Metric

from ..errors import TableError
from ..operations import Delete, Get, Operation, Outcome, Put, Record, Update, Written
from ..store import Policy, Store

_BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

_KINDS: dict[type, str] = {Get: "get", Put: "put", Update: "update", Delete: "delete"}


class Metrics:
    """The metrics that the tables of one catalog share."""

    def __init__(self, registry: CollectorRegistry) -> None:
        labels = ("table", "operation", "outcome")
        self.operations = Metric(
            "tableside_operations", "Operations by what became of them.", labels, registry=registry
        )
        self.seconds = Histogram(
            "tableside_operation_duration_seconds",
            "Time that an operation took, failures included; observed once per call, operation and outcome.",
            labels,
            buckets=_BUCKETS_S,
            registry=registry,
        )


class Measure(Policy):
    """A store whose operations are counted and timed."""

    def __init__(self, inner: Store, metrics: Metrics, table: str) -> None:
        super().__init__(inner)
        self._metrics = metrics
        self._table = table
        self._children: dict[tuple[str, str], tuple[Metric, Histogram]] = {}

    async def apply(self, operations: Sequence[Operation], until: float = math.inf) -> list[Outcome]:
        """Hand the operations on, and count what became of them."""
        started = time.perf_counter()
        outcomes = await self._inner.apply(operations, until)
        seconds = time.perf_counter() - started
        for (operation, outcome), count in _counted(operations, outcomes).items():
            counter, histogram = self._child(operation, outcome)
            counter.inc(count)
            histogram.observe(seconds)
        return outcomes

    def _child(self, operation: str, outcome: str) -> tuple[Metric, Histogram]:
        # Looking a child up by its labels costs more than counting.
        if (child := self._children.get((operation, outcome))) is None:
            labels = (self._table, operation, outcome)
            child = (self._metrics.operations.labels(*labels), self._metrics.seconds.labels(*labels))
            self._children[operation, outcome] = child
        return child


def _counted(operations: Sequence[Operation], outcomes: Sequence[Outcome]) -> dict[tuple[str, str], int]:
    if len(operations) == 1:
        return {(_KINDS[type(operations[0])], _label(outcomes[0])): 1}
    if set(map(type, operations)) == {Get} and (found := list(map(type, outcomes)).count(Record)) == len(outcomes):
        return {("get", "found"): found}
    counted: Counter[tuple[str, str]] = Counter()
    for (kind, outcome), count in Counter(zip(map(type, operations), map(type, outcomes), strict=True)).items():
        if outcome is Record or outcome is type(None):
            counted[_KINDS[kind], "found" if outcome is Record else "absent"] += count
        else:
            alike = zip(operations, outcomes, strict=True)
            counted.update(
                (_KINDS[kind], _label(answer)) for one, answer in alike if type(one) is kind and type(answer) is outcome
            )
    return counted


def _label(answer: Outcome) -> str:
    match answer:
        case Record():
            return "found"
        case None:
            return "absent"
        case TableError():
            return answer.code
        case Written():
            return "replayed" if answer.replayed else "created" if answer.created else "written"
