"""Metrics of rate limits, by table and direction and never by caller."""

from prometheus_client import CollectorRegistry, Counter, Histogram

from ...core.directions import Direction

_LABELS = ("table", "direction")
_BUCKETS_S = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0)


class RateLimitMetrics:
    """The metrics that the tables of one catalog share."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.throttled = Counter(
            "tableside_rate_limit_throttled",
            "Operations that the table's own rate limit rejected.",
            _LABELS,
            registry=registry,
        )
        self.waited_s = Histogram(
            "tableside_rate_limit_wait_seconds",
            "Time that calls waited for credits; only calls that had to wait, once for each part.",
            _LABELS,
            buckets=_BUCKETS_S,
            registry=registry,
        )
        self.fallbacks = Counter(
            "tableside_rate_limit_fallbacks",
            "Times that the limiter shared by replicas could not be reached, so the replica used its own credits.",
            _LABELS,
            registry=registry,
        )


class CallerLimitMetrics:
    """The metrics of limits per caller, shared by the tables of one catalog."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.throttled = Counter(
            "tableside_caller_limit_throttled",
            "Operations that their caller's own limit rejected.",
            _LABELS,
            registry=registry,
        )
        self.waited_s = Histogram(
            "tableside_caller_limit_wait_seconds",
            "Time that calls waited for their caller's own limit; only calls that had to wait, once for each part.",
            _LABELS,
            buckets=_BUCKETS_S,
            registry=registry,
        )


class LimitCounters:
    """The counters of one direction of a table. Without metrics, they do nothing."""

    def __init__(self, metrics: RateLimitMetrics | CallerLimitMetrics | None, table: str, direction: Direction) -> None:
        self._throttled = metrics.throttled.labels(table, direction) if metrics else None
        self._waited_s = metrics.waited_s.labels(table, direction) if metrics else None

    def throttled(self, count: int) -> None:
        """Count operations that were rejected."""
        if self._throttled is not None:
            self._throttled.inc(count)

    def waited(self, seconds: float) -> None:
        """Observe the time that a call waited."""
        if self._waited_s is not None and seconds > 0:
            self._waited_s.observe(seconds)
