"""Metrics of caches, by table and never by key."""

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
            "Gets by the source of the outcome: hit is the cache, miss a read of the store, coalesced a read that "
            "another get had begun, bypassed a read because the caller accepted no cached record.",
            ("table", "outcome"),
            registry=registry,
        )
        self.age_seconds = Histogram(
            "tableside_cache_age_seconds",
            "Age of the oldest record from the cache in one call.",
            ("table",),
            buckets=_AGES_S,
            registry=registry,
        )
        self.evictions = Counter(
            "tableside_cache_evictions",
            "Records and absences that were evicted from a full cache.",
            ("table",),
            registry=registry,
        )
        self.records = Gauge(
            "tableside_cache_records",
            "Records and absences in a cache.",
            ("table",),
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.bytes = Gauge(
            "tableside_cache_bytes",
            "Memory of a cache's entries.",
            ("table",),
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.invalidations = Counter(
            "tableside_cache_invalidations",
            "Written keys that this replica published to others (sent), or received from them; all keys of a table at "
            "once count as one.",
            ("table", "direction"),
            registry=registry,
        )
        self.channel_up = Gauge(
            "tableside_cache_channel_up",
            "1 while this replica is subscribed to the channel and can publish, by the store of the channel.",
            ("store",),
            registry=registry,
            multiprocess_mode="livemin",
        )
        self.channel_losses = Counter(
            "tableside_cache_channel_losses",
            "Times that this replica lost its subscription, by the store of the channel.",
            ("store",),
            registry=registry,
        )
        self.of_partitions: dict[str, dict[int | None, tuple[int, int]]] = {}
        """The records and bytes of each partition's cache, by table."""


class TableCacheMetrics:
    """The metrics of one table's cache, or of one partition's, resolved once."""

    def __init__(self, metrics: CacheMetrics, table: str, partition: int | None = None) -> None:
        self._partition = partition
        self._by_partition = metrics.of_partitions.setdefault(table, {})
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
        self._evictions_counted = 0

    def count_hits(self, gets: int, age_s: float) -> None:
        """Count the gets of one call that the cache answered. `age_s` is the age of the oldest record."""
        self.hits.inc(gets)
        self.age_seconds.observe(age_s)

    def count_misses(self, own: Sequence[Operation], joined: int) -> None:
        """Count the gets that the cache did not answer: gets that read the store, and gets that join a load."""
        ages = [operation.max_age_s for operation in own if type(operation) is Get]
        bypassed = ages.count(0)
        for counter, count in (
            (self.misses, len(ages) - bypassed),
            (self.bypassed, bypassed),
            (self.coalesced, joined),
        ):
            if count:
                counter.inc(count)

    def update_size(self, records: int, size_bytes: int, evictions: int) -> None:
        """Update the gauges, and the counter of evictions from their total."""
        self._by_partition[self._partition] = records, size_bytes
        if len(self._by_partition) > 1:
            records, size_bytes = map(sum, zip(*self._by_partition.values(), strict=True))
        self.records.set(records)
        self.bytes.set(size_bytes)
        if evictions > self._evictions_counted:
            self.evictions.inc(evictions - self._evictions_counted)
            self._evictions_counted = evictions
