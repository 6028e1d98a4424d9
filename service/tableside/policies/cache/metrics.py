"""What a cache counts, by table; never by key. Knows nothing of what is kept."""

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge

from ...operations import Get, Operation


class Metrics:
    """The metrics that the caches of one catalog share."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.gets = Counter(
            "tableside_cache_gets",
            "Gets by where the answer came from: hit is what was kept, miss a reading of the store, coalesced the "
            "reading that another get had begun, bypassed a reading because the caller wanted no cached answer.",
            ("table", "outcome"),
            registry=registry,
        )
        self.evictions = Counter(
            "tableside_cache_evictions",
            "Records and absences that had to leave a full cache.",
            ("table",),
            registry=registry,
        )
        self.records = Gauge(
            "tableside_cache_records", "Records and absences that a cache holds.", ("table",), registry=registry
        )
        self.bytes = Gauge("tableside_cache_bytes", "Memory that a cache holds.", ("table",), registry=registry)


class TableMetrics:
    """The metrics of one table's cache, looked up once."""

    def __init__(self, metrics: Metrics, table: str) -> None:
        self.hits, self.misses, self.coalesced, self.bypassed = (
            metrics.gets.labels(table, outcome) for outcome in ("hit", "miss", "coalesced", "bypassed")
        )
        self.evictions = metrics.evictions.labels(table)
        self.records = metrics.records.labels(table)
        self.bytes = metrics.bytes.labels(table)
        self._evictions_told = 0

    def asked(self, own: Sequence[Operation], joined: int) -> None:
        """Count gets that were not answered at once: those that read the store themselves, and those that wait."""
        ages = [operation.max_age_s for operation in own if type(operation) is Get]
        bypassed = ages.count(0)
        for counter, count in (
            (self.misses, len(ages) - bypassed),
            (self.bypassed, bypassed),
            (self.coalesced, joined),
        ):
            if count:
                counter.inc(count)

    def held(self, records: int, size_bytes: int, evictions: int) -> None:
        """Show what is held, and how much was evicted so far."""
        self.records.set(records)
        self.bytes.set(size_bytes)
        if evictions > self._evictions_told:
            self.evictions.inc(evictions - self._evictions_told)
            self._evictions_told = evictions
