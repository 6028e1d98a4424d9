"""Counters and histograms with cheap increments: plain numbers that are flushed to prometheus_client.

The library's own classes take a lock and, with several workers, write to a file for every number of an observation.
That costs several times the observation itself. These classes pass their numbers to the library at collection.
With several workers, the worker that is scraped reads the files of the others, so each worker also flushes its own
numbers (`Registry.flush`).

One thread counts, and another may flush: counts only grow and are never reset.
"""

from bisect import bisect_left
from collections.abc import Iterable
from typing import Any

import prometheus_client
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.registry import Collector


class Counter(prometheus_client.Counter):
    """A counter. It must have labels."""

    def _metric_init(self) -> None:
        super()._metric_init()
        self._before = self._value.get()  # of a previous worker with the same number, if its file still exists
        self._counted: float = 0
        self._flushed: float = 0

    def inc(self, amount: float = 1) -> None:  # type: ignore[override]  # exemplars are not supported
        """Increase the counter."""
        self._counted += amount

    def collect(self) -> Iterable[Metric]:
        """Return the current value."""
        flush(self)
        return super().collect()

    def flush(self) -> None:
        """Pass the count to the library."""
        if (counted := self._counted) != self._flushed:
            self._flushed = counted
            self._value.set(self._before + counted)


class Histogram(prometheus_client.Histogram):
    """A histogram. It must have labels."""

    def _metric_init(self) -> None:
        super()._metric_init()
        self._before = [self._sum.get(), *(bucket.get() for bucket in self._buckets)]
        self._total = 0.0
        self._counts = [0] * len(self._buckets)
        self._flushed = [*self._counts]

    def observe(self, amount: float) -> None:  # type: ignore[override]  # exemplars are not supported
        """Record one observation."""
        self._total += amount  # before the count: a flush reads the counts first, so the sum includes all of them
        self._counts[bisect_left(self._upper_bounds, amount)] += 1

    def collect(self) -> Iterable[Metric]:
        """Return the current buckets and sum."""
        flush(self)
        return super().collect()

    def flush(self) -> None:
        """Pass the observations to the library."""
        if self._counts == self._flushed:
            return
        counts = [*self._counts]
        before, *buckets_before = self._before
        self._sum.set(before + self._total)
        for bucket, bucket_before, count, flushed in zip(
            self._buckets, buckets_before, counts, self._flushed, strict=True
        ):
            if count != flushed:
                bucket.set(bucket_before + count)
        self._flushed = counts


class Registry(CollectorRegistry):
    """A registry that can flush all of its counters and histograms without collecting metrics."""

    def __init__(self) -> None:
        super().__init__()
        self._metrics_to_flush: list[Counter | Histogram] = []

    def register(self, collector: Collector) -> None:
        """Register a collector."""
        super().register(collector)
        if isinstance(collector, Counter | Histogram):
            self._metrics_to_flush.append(collector)

    def flush(self) -> None:
        """Pass the current counts to the library."""
        for metric in self._metrics_to_flush:
            flush(metric)


def flush(parent: Counter | Histogram) -> None:
    """Pass the counts of all labels to the library."""
    library: Any = parent
    with library._lock:  # noqa: SLF001  # the lock of the children: two concurrent flushes could decrease a count
        for child in library._metrics.values():  # noqa: SLF001  # instances of this module's classes
            child.flush()
