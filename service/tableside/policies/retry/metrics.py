"""Metrics of retries."""

from collections import Counter
from collections.abc import Sequence
from typing import Literal

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client import Counter as Metric

from ...core import Operation
from ...core.directions import direction

Reason = Literal["attempts", "deadline", "total", "budget"]


class RetryMetrics:
    """The metrics that the tables of one catalog share."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.retries = Metric(
            "tableside_retries",
            "Operations retried, counted for each retry.",
            ("table", "direction"),
            registry=registry,
        )
        self.given_up = Metric(
            "tableside_retries_given_up",
            "Operations with a retriable error that were not retried, by what was exhausted.",
            ("table", "direction", "reason"),
            registry=registry,
        )
        self.budget = Gauge(
            "tableside_retry_budget_operations",
            "Operations of a store that could be retried now; below 1 none.",
            ("store",),
            registry=registry,
            multiprocess_mode="livesum",
        )


class RetryCounters:
    """The counters of one table. Without metrics, they do nothing."""

    def __init__(self, table: str, metrics: RetryMetrics | None) -> None:
        self._table = table
        self._metrics = metrics

    def retried(self, operations: Sequence[Operation]) -> None:
        """Count operations that are retried."""
        if self._metrics is not None:
            for name, count in Counter(map(direction, operations)).items():
                self._metrics.retries.labels(self._table, name).inc(count)

    def given_up(self, operations: Sequence[Operation], reason: Reason) -> None:
        """Count operations that are not retried, and why."""
        if self._metrics is not None:
            for name, count in Counter(map(direction, operations)).items():
                self._metrics.given_up.labels(self._table, name, reason).inc(count)
