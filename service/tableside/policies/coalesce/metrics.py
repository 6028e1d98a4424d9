"""Metrics of the coalescing policy, by table and never by key."""

from prometheus_client import CollectorRegistry

from ...telemetry import Counter, Histogram

_COUNTS = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000)
_BUCKETS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)


class CoalesceMetrics:
    """The metrics that the tables of one catalog share."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.operations = Histogram(
            "tableside_call_operations",
            "Operations in one call of the store, by the reason for sending it: direct, waited, full.",
            ("table", "reason"),
            buckets=_COUNTS,
            registry=registry,
        )
        self.wait_seconds = Histogram(
            "tableside_coalesce_wait_seconds",
            "How long the first operation of a shared call waited for others.",
            ("table",),
            buckets=_BUCKETS_S,
            registry=registry,
        )
        self.shared_gets = Counter(
            "tableside_coalesced_gets",
            "Gets that received the outcome of another get of the same key.",
            ("table",),
            registry=registry,
        )


class TableCoalesceMetrics:
    """The metrics of one table, resolved once: a lookup by labels costs more than counting."""

    def __init__(self, metrics: CoalesceMetrics, table: str) -> None:
        self._wait_seconds = metrics.wait_seconds.labels(table)
        self._shared_gets = metrics.shared_gets.labels(table)
        self._operations = {reason: metrics.operations.labels(table, reason) for reason in ("direct", "waited", "full")}

    def direct(self, operations: int) -> None:
        """Count a call that was sent without waiting."""
        self._operations["direct"].observe(operations)

    def shared(self, operations: int, callers: int, waited_s: float, *, full: bool) -> None:
        """Count a call that waited for others. `callers` is the number of operations that receive its outcomes."""
        self._operations["full" if full else "waited"].observe(operations)
        self._wait_seconds.observe(waited_s)
        if callers > operations:
            self._shared_gets.inc(callers - operations)
