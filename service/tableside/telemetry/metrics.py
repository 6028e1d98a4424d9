"""The service's metrics in Prometheus text format: of one process, or of all workers of a replica combined.

Counters and histograms are plain numbers that are flushed to prometheus_client. The library's own classes take a lock
and, with several workers, write to a file for every number of an observation. One thread counts, and another may flush:
counts only grow and are never reset.

Workers write their counts to files in a shared directory (`PROMETHEUS_MULTIPROC_DIR`, set before they start). The
worker that is scraped adds them up. A process writes its counts and sets its gauges at every scrape. Workers also do so
every second and when they exit.
"""

import asyncio
import os
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import prometheus_client
from prometheus_client import CollectorRegistry, Gauge, Metric, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from .. import __version__

DIRECTORY_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"

prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]  # a third of all series, for no reader


class Counter(prometheus_client.Counter):
    """A counter. It must have labels."""

    def _metric_init(self) -> None:
        super()._metric_init()
        self._counted = self._flushed = self._value.get()  # of an earlier worker of this number, if its file exists

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
            self._value.set(counted)


class Histogram(prometheus_client.Histogram):
    """A histogram. It must have labels."""

    def _metric_init(self) -> None:
        super()._metric_init()
        self._total = self._sum.get()
        self._counts = [bucket.get() for bucket in self._buckets]
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
        self._sum.set(self._total)
        for bucket, count, flushed in zip(self._buckets, counts, self._flushed, strict=True):
            if count != flushed:
                bucket.set(count)
        self._flushed = counts


def flush(parent: Counter | Histogram) -> None:
    """Pass the counts of all labels to the library."""
    library: Any = parent
    with library._lock:  # noqa: SLF001  # the lock of the children: two concurrent flushes could decrease a count
        for child in library._metrics.values():  # noqa: SLF001  # instances of this module's classes
            child.flush()


class Exposition:
    """Registers metrics (`registry`) and renders them."""

    def __init__(self) -> None:
        self.registry = self._rendered_registry = CollectorRegistry()
        self._samples: list[Callable[[], None]] = []
        self._render_lock = asyncio.Lock()
        self._next: asyncio.Task[bytes] | None = None
        self._free_at = 0.0
        self.directory = os.environ.get(DIRECTORY_VARIABLE) or None
        if self.directory is None:
            ProcessCollector(registry=self.registry)
            PlatformCollector(registry=self.registry)
        else:
            for file in Path(self.directory).glob("gauge_live*_*.db"):  # of workers, which may have exited
                if not Path("/proc", file.stem.rpartition("_")[2]).exists():
                    file.unlink(missing_ok=True)  # Another worker that starts may do the same.
            self._rendered_registry = CollectorRegistry()
            MultiProcessCollector(self._rendered_registry)  # type: ignore[no-untyped-call]  # it has no annotations
        build = Gauge(
            "tableside_build_info",
            "The version that runs.",
            ["version"],
            registry=self.registry,
            multiprocess_mode="livemax",
        )
        build.labels(__version__).set(1)

    def on_sample(self, sample: Callable[[], None]) -> None:
        """Call `sample` to set gauges before metrics are rendered."""
        self._samples.append(sample)

    def sample(self) -> None:
        """Set the gauges of this process, and write its counts for the other workers."""
        for sample in self._samples:
            sample()
        self.flush()

    def flush(self) -> None:
        """Write this process's counts for the other workers, if there are any."""
        library: Any = self.registry
        for metric in [*library._collector_to_names]:  # noqa: SLF001  # collecting would also render the samples
            if self.directory is not None and isinstance(metric, Counter | Histogram):
                flush(metric)

    def collect(self) -> Iterable[Metric]:
        """Return the current metrics."""
        self.sample()
        return self._rendered_registry.collect()

    async def text_in_thread(self) -> bytes:
        """Return the metrics, rendered in a thread because a thousand tables take a second.

        Requests that arrive during a rendering share the next one. Renderings take at most half of the time, because
        requests for metrics may need no token and are not limited otherwise.
        """
        if self._next is None:
            self._next = asyncio.create_task(self._render())
        return await asyncio.shield(self._next)

    async def _render(self) -> bytes:
        async with self._render_lock:
            await asyncio.sleep(self._free_at - time.monotonic())
            self._next = None  # Later requests must see later counts, so they start another rendering.
            started = time.monotonic()
            self.sample()
            try:
                return await asyncio.to_thread(generate_latest, self._rendered_registry)
            finally:
                now = time.monotonic()
                self._free_at = now + (now - started)
