"""Counters and histograms that cost little where something is counted: plain numbers, until somebody looks at them.

The library's own take a lock, and among workers write to a file, for every number of an observation: several times
what the observation itself does. These are settled, given to the library, when they are collected; and among workers,
where whoever is asked reads the others' files, by each worker itself (`Registry.settle`).

They are counted by one thread, and may be settled by another: what is counted only grows, and is never set back.
"""

from bisect import bisect_left
from collections.abc import Iterable
from typing import Any

import prometheus_client
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.registry import Collector


class Counter(prometheus_client.Counter):
    """A counter with labels: here every one has some."""

    def _metric_init(self) -> None:
        super()._metric_init()
        self._before = self._value.get()  # of a worker that had this one's number, if its file is there still
        self._counted: float = 0
        self._settled: float = 0

    def inc(self, amount: float = 1) -> None:  # type: ignore[override]  # exemplars are of no use here
        """Count so much."""
        self._counted += amount

    def collect(self) -> Iterable[Metric]:
        """Return what was counted until now."""
        flush(self)
        return super().collect()

    def flush(self) -> None:
        """Give the library what was counted."""
        if (counted := self._counted) != self._settled:
            self._settled = counted
            self._value.set(self._before + counted)


class Histogram(prometheus_client.Histogram):
    """A histogram with labels: here every one has some."""

    def _metric_init(self) -> None:
        super()._metric_init()
        self._before = [self._sum.get(), *(bucket.get() for bucket in self._buckets)]
        self._total = 0.0
        self._counts = [0] * len(self._buckets)
        self._settled = [*self._counts]

    def observe(self, amount: float) -> None:  # type: ignore[override]  # exemplars are of no use here
        """Count one of this size."""
        self._total += amount  # first: whoever settles looks at the counts first, and misses nothing that they have
        self._counts[bisect_left(self._upper_bounds, amount)] += 1

    def collect(self) -> Iterable[Metric]:
        """Return what was observed until now."""
        flush(self)
        return super().collect()

    def flush(self) -> None:
        """Give the library what was observed."""
        if self._counts == self._settled:
            return
        counts = [*self._counts]
        before, *buckets_before = self._before
        self._sum.set(before + self._total)
        for bucket, bucket_before, count, settled in zip(
            self._buckets, buckets_before, counts, self._settled, strict=True
        ):
            if count != settled:
                bucket.set(bucket_before + count)
        self._settled = counts


class Registry(CollectorRegistry):
    """A registry that can have all of its counters and histograms settled, without collecting anything."""

    def __init__(self) -> None:
        super().__init__()
        self._tallies: list[Counter | Histogram] = []

    def register(self, collector: Collector) -> None:
        """Take what is collected."""
        super().register(collector)
        if isinstance(collector, Counter | Histogram):
            self._tallies.append(collector)

    def flush(self) -> None:
        """Give the library what was counted until now."""
        for tally in self._tallies:
            flush(tally)


def flush(parent: Counter | Histogram) -> None:
    """Give the library what was counted, under all labels."""
    library: Any = parent
    with library._lock:  # noqa: SLF001  # that of the children: two who settle at once would set a count back
        for child in library._metrics.values():  # noqa: SLF001  # they are ours
            child.flush()
