"""The policies around a table's store, as its settings say: which there are, and in what order."""

from prometheus_client import CollectorRegistry

from .policies import bulkhead, cache, coalesce, measure, rate_limit, retry, timeout
from .settings import DirectionSettings, TableSettings
from .store import Policy, Store


class Metrics:
    """The metrics of every policy, shared by the tables of one catalog."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.measure = measure.Metrics(registry)
        self.cache = cache.Metrics(registry)
        self.coalesce = coalesce.Metrics(registry)
        self.retry = retry.Metrics(registry)
        self.rate_limit = rate_limit.Metrics(registry)
        self.bulkhead = bulkhead.Metrics(registry)
        self.timeout = timeout.Metrics(registry)


def stack(store: Store, settings: TableSettings, metrics: Metrics, *, remote: bool, share: float = 1.0) -> Policy:
    """Put the policies around a store, the innermost first: every attempt pays and is bounded, a cache hit is free.

    A store in this process is tried again, and is bounded in its calls, only where the file says so. `share` is this
    process's part of what the workers of a replica may do together.
    """
    read, write = settings.read, settings.write
    if read.timeout_s is not None or write.timeout_s is not None:
        store = timeout.Timeout(store, read_s=read.timeout_s, write_s=write.timeout_s, metrics=metrics.timeout)
    if remote or "concurrency_max" in settings.model_fields_set:
        store = bulkhead.Bulkhead(store, settings.concurrency_max, metrics=metrics.bulkhead)
    if read.rate_per_s is not None or write.rate_per_s is not None:
        store = rate_limit.RateLimit(
            store, read=_rate(read, share), write=_rate(write, share), metrics=metrics.rate_limit
        )
    if remote or read.tries_again or write.tries_again:
        store = retry.Retry(
            store,
            read_attempts_max=read.attempts_max,
            write_attempts_max=write.attempts_max,
            metrics=metrics.retry,
        )
    if (batch := settings.batch) is not None:
        store = coalesce.Coalesce(
            store,
            operations_max=batch.operations_max,
            bytes_max=batch.bytes_max,
            linger_s=batch.linger_s,
            metrics=metrics.coalesce,
        )
    if (kept := settings.cache) is not None:
        store = cache.Cache(
            store,
            records_max=kept.records_max,
            bytes_max=kept.bytes_max,
            ttl_s=kept.ttl_s,
            absent_ttl_s=kept.absent_ttl_s,
            metrics=metrics.cache,
        )
    return measure.Measure(store, metrics.measure, store.spec.name)


def _rate(direction: DirectionSettings, share: float) -> rate_limit.Rate | None:
    if direction.rate_per_s is None:
        return None
    burst = direction.burst if direction.burst is not None else direction.rate_per_s
    return rate_limit.Rate(direction.rate_per_s * share, max(1.0, burst * share))
