"""The metrics of all policies: by table, store or direction, and never by key or caller."""

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Gauge

from ..telemetry import Counter, Histogram

_AGES_S = (0.01, 0.05, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0)
_CALLS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_COALESCED_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
_THROTTLED_S = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0)
_OPERATIONS = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000)


class PolicyMetrics:
    """The metrics that the tables of one catalog share. Without a registry, they are counted and not shown."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        by_direction = ("table", "direction")

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(name, text, labels or by_direction, registry=registry)

        def histogram(name: str, text: str, buckets: Sequence[float], *labels: str) -> Histogram:
            return Histogram(name, text, labels or by_direction, buckets=buckets, registry=registry)

        def gauge(name: str, text: str, label: str = "table") -> Gauge:
            return Gauge(name, text, (label,), registry=registry, multiprocess_mode="livesum")

        self.call_seconds = histogram(
            "tableside_store_call_duration_seconds",
            "Time of one call of a table's store, by its kind (apply, scan, splits) and outcome: ok, cancelled, or the "
            "code of the first operation that failed.",
            _CALLS_S,
            *("table", "call", "outcome"),
        )
        self.call_operations = histogram(
            "tableside_store_call_operations", "Operations in one call of a table's store.", _OPERATIONS, "table"
        )
        self.timeouts = counter(
            "tableside_attempt_timeouts", "Operations that timed out in one attempt, counted for each attempt."
        )
        self.bulkhead_calls = counter(
            "tableside_bulkhead_calls",
            "Calls that found the limit reached, by whether they were sent later (waited) or not (refused).",
            *("table", "outcome"),
        )
        self.throttled = counter(
            "tableside_rate_limit_throttled", "Operations that the table's own rate limit rejected."
        )
        self.throttle_seconds = histogram(
            "tableside_rate_limit_wait_seconds",
            "Time that calls waited for credits; only calls that had to wait, once for each part.",
            _THROTTLED_S,
        )
        self.limiter_fallbacks = counter(
            "tableside_rate_limit_fallbacks",
            "Times that the limiter shared by replicas could not be reached, so the replica used its own credits.",
        )
        self.caller_throttled = counter(
            "tableside_caller_limit_throttled", "Operations that their caller's own limit rejected."
        )
        self.caller_throttle_seconds = histogram(
            "tableside_caller_limit_wait_seconds",
            "Time that calls waited for their caller's own limit; only calls that had to wait, once for each part.",
            _THROTTLED_S,
        )
        self.retries = counter("tableside_retries", "Operations retried, counted for each retry.")
        self.retries_given_up = counter(
            "tableside_retries_given_up",
            "Operations with a retriable error that were not retried, by what was exhausted.",
            *(*by_direction, "reason"),
        )
        self.retry_budget = gauge(
            "tableside_retry_budget_operations",
            "Operations of a store that could be retried now; below 1 none.",
            "store",
        )
        self.coalesced_operations = histogram(
            "tableside_call_operations",
            "Operations in one call of the store, by the reason for sending it: direct, waited, full.",
            _OPERATIONS,
            *("table", "reason"),
        )
        self.coalesce_seconds = histogram(
            "tableside_coalesce_wait_seconds",
            "How long the first operation of a shared call waited for others.",
            _COALESCED_S,
            "table",
        )
        self.coalesced_gets = counter(
            "tableside_coalesced_gets", "Gets that received the outcome of another get of the same key.", "table"
        )
        self.cache_gets = counter(
            "tableside_cache_gets",
            "Gets by the source of the outcome: hit is the cache, miss a read of the store, "
            "bypassed a read because the caller accepted no cached record.",
            *("table", "outcome"),
        )
        self.cache_age_seconds = histogram(
            "tableside_cache_age_seconds", "Age of the oldest record from the cache in one call.", _AGES_S, "table"
        )
        self.cache_evictions = counter(
            "tableside_cache_evictions", "Records and absences that were evicted from a full cache.", "table"
        )
        self.cache_records = gauge("tableside_cache_records", "Records and absences in a cache.")
        self.cache_bytes = gauge("tableside_cache_bytes", "Memory of a cache's entries.")
        self.cache_sizes: dict[str, dict[int | None, tuple[int, int]]] = {}
        """The records and bytes of each partition's cache, by table."""


class CoalesceMetrics:
    """The metrics of the shared calls of one table."""

    def __init__(self, metrics: PolicyMetrics, table: str) -> None:
        self._wait_seconds = metrics.coalesce_seconds.labels(table)
        self._shared_gets = metrics.coalesced_gets.labels(table)
        self._operations = {
            reason: metrics.coalesced_operations.labels(table, reason) for reason in ("direct", "waited", "full")
        }

    def direct(self, operations: int) -> None:
        """Count a call that was sent without waiting."""
        self._operations["direct"].observe(operations)

    def shared(self, operations: int, callers: int, waited_s: float, *, full: bool) -> None:
        """Count a call that waited for others. `callers` is the number of callers that receive its outcomes."""
        self._operations["full" if full else "waited"].observe(operations)
        self._wait_seconds.observe(waited_s)
        self._shared_gets.inc(callers - operations)
