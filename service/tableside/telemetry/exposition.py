"""The service's metrics in Prometheus text format: of one process, or of all workers of a replica combined.

Workers write their counts to files in a shared directory (`PROMETHEUS_MULTIPROC_DIR`, set before they start). The
worker that is scraped adds them up. A process writes its counts and sets its gauges at every scrape. Workers
also do so every second and when they exit.
"""

import asyncio
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from prometheus_client import CollectorRegistry, Gauge, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector

from .. import __version__
from .counters import Registry

DIRECTORY_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"


class Exposition:
    """Registers metrics (`registry`) and renders them."""

    def __init__(self) -> None:
        self.registry = Registry()
        self._rendered_registry: CollectorRegistry = self.registry
        self._samples: list[Callable[[], None]] = []
        self._render_lock = asyncio.Lock()
        self._next: asyncio.Task[bytes] | None = None
        self._free_at = 0.0
        self.directory = os.environ.get(DIRECTORY_VARIABLE) or None
        if self.directory is None:
            ProcessCollector(registry=self.registry)
            PlatformCollector(registry=self.registry)
        else:
            _remove_gauges_of_exited_workers(Path(self.directory))
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
        if self.directory is not None:
            self.registry.flush()

    def collect(self) -> Iterable[Metric]:
        """Return the current metrics."""
        self.sample()
        return self._rendered_registry.collect()

    def text(self) -> bytes:
        """Return the current metrics in text format."""
        self.sample()
        return generate_latest(self._rendered_registry)

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


def _remove_gauges_of_exited_workers(directory: Path) -> None:
    """Remove the gauges of workers that have exited. Other starting workers may do the same concurrently."""
    for file in directory.glob("gauge_live*_*.db"):
        pid = int(file.stem.rpartition("_")[2])
        if not Path(f"/proc/{pid}").exists():
            file.unlink(missing_ok=True)
