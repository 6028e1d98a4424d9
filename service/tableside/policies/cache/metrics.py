"""What a cache counts, by table; never by key. Knows nothing of what is kept."""

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Gauge

from ...core import Get, Operation
from ...telemetry import Counter, Histogram

_AGES_S = (0.01, 0.05, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0)


class CacheMetrics:
    """The metrics that the caches of one catalog, and the channels between replicas, share."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.gets = Counter(
            "tableside_cache_gets",
            "Gets by where the answer came from: hit is what was kept, miss a reading of the store, coalesced the "
            "reading that another get had begun, bypassed a reading because the caller wanted no cached answer.",
            ("table", "outcome"),
            registry=registry,
        )
        self.age_seconds = Histogram(
            "tableside_cache_age_seconds",
            "Age of what was answered from what was kept: observed once per call, of the oldest answer in it.",
            ("table",),
            buckets=_AGES_S,
            registry=registry,
        )
        self.evictions = Counter(
            "tableside_cache_evictions",
            "Records and absences that had to leave a full cache.",
            ("table",),
            registry=registry,
        )
        self.records = Gauge(
            "tableside_cache_records",
            "Records and absences that a cache holds.",
            ("table",),
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.bytes = Gauge(
            "tableside_cache_bytes",
            "Memory that a cache holds.",
            ("table",),
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.invalidations = Counter(
            "tableside_cache_invalidations",
            "Keys that this replica has told others to drop (sent), or was told to drop (received); all keys of a "
            "table at once count one.",
            ("table", "direction"),
            registry=registry,
        )
        self.channel_up = Gauge(
            "tableside_cache_channel_up",
            "1 while this replica hears the others and can tell them, by the store that is the channel.",
            ("store",),
            registry=registry,
            multiprocess_mode="livemin",
        )
        self.channel_losses = Counter(
            "tableside_cache_channel_losses",
            "Times that this replica no longer heard the others, by the store that is the channel.",
            ("store",),
            registry=registry,
        )
        self.of_partitions: dict[str, dict[int | None, tuple[int, int]]] = {}
        """Of a table with a cache for each partition, the records and bytes that each holds."""


class TableCacheMetrics:
    """The metrics of one table's cache, or of one partition's, looked up once."""

    def __init__(self, metrics: CacheMetrics, table: str, partition: int | None = None) -> None:
        self._partition = partition
        self._held = metrics.of_partitions.setdefault(table, {})
        self.hits, self.misses, self.coalesced, self.bypassed = (
            metrics.gets.labels(table, outcome) for outcome in ("hit", "miss", "coalesced", "bypassed")
        )
        self.age_seconds = metrics.age_seconds.labels(table)
        self.evictions = metrics.evictions.labels(table)
        self.records = metrics.records.labels(table)
        self.bytes = metrics.bytes.labels(table)
        self.sent, self.received = (
            metrics.invalidations.labels(table, direction) for direction in ("sent", "received")
        )
        self._evictions_told = 0

    def answered(self, gets: int, age_s: float) -> None:
        """Count gets that were answered at once, in one call, the oldest answer being so old."""
        self.hits.inc(gets)
        self.age_seconds.observe(age_s)

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
        self._held[self._partition] = records, size_bytes
        if len(self._held) > 1:
            records, size_bytes = map(sum, zip(*self._held.values(), strict=True))
        self.records.set(records)
        self.bytes.set(size_bytes)
        if evictions > self._evictions_told:
            self.evictions.inc(evictions - self._evictions_told)
            self._evictions_told = evictions
