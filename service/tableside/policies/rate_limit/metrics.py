"""What a rate limit counts."""

from prometheus_client import CollectorRegistry, Counter, Histogram


class Metrics:
    """The metrics that the tables of one catalog share."""

    def __init__(self, registry: CollectorRegistry) -> None:
        labels = ("table", "direction")
        self.throttled = Counter(
            "tableside_rate_limit_throttled",
            "Operations that the table's own rate limit refused.",
            labels,
            registry=registry,
        )
        self.waited_s = Histogram(
            "tableside_rate_limit_wait_seconds",
            "Time that calls waited for credits; only calls that had to wait, once for each part.",
            labels,
            buckets=(0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0),
            registry=registry,
        )
