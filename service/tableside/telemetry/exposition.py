"""The metrics of the service in Prometheus' text format: of one process, or of all workers of a replica together.

Workers write what they count to files in a directory that they share (`PROMETHEUS_MULTIPROC_DIR`, set before they
start); whichever is asked sums them up. That is done, and gauges are set, when they are asked for; and by workers every
second, too, and when they end.
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
    """Where metrics are made (`registry`), and how they are shown."""

    def __init__(self) -> None:
        self.registry = Registry()
        self._shown: CollectorRegistry = self.registry
        self._samples: list[Callable[[], None]] = []
        self._writing = asyncio.Lock()
        self._next: asyncio.Task[bytes] | None = None
        self._free_at = 0.0
        self.directory = os.environ.get(DIRECTORY_VARIABLE) or None
        if self.directory is None:
            ProcessCollector(registry=self.registry)
            PlatformCollector(registry=self.registry)
        else:
            _forget_the_dead(Path(self.directory))
            self._shown = CollectorRegistry()
            MultiProcessCollector(self._shown)  # type: ignore[no-untyped-call]  # it has no annotations
        build = Gauge(
            "tableside_build_info",
            "The version that runs.",
            ["version"],
            registry=self.registry,
            multiprocess_mode="livemax",
        )
        build.labels(__version__).set(1)

    def on_sample(self, sample: Callable[[], None]) -> None:
        """Have gauges set by `sample` whenever they are to be shown."""
        self._samples.append(sample)

    def sample(self) -> None:
        """Set the gauges of this process, and let the other workers see what it has counted."""
        for sample in self._samples:
            sample()
        self.flush()

    def flush(self) -> None:
        """Let the other workers, if there are any, see what this process has counted."""
        if self.directory is not None:
            self.registry.flush()

    def collect(self) -> Iterable[Metric]:
        """Return the metrics as they are now."""
        self.sample()
        return self._shown.collect()

    def text(self) -> bytes:
        """Return the metrics."""
        self.sample()
        return generate_latest(self._shown)

    async def text_in_thread(self) -> bytes:
        """Return the metrics, written in a thread: with a thousand tables that takes a second.

        All who ask while it is done get what is written next, and half of the time nothing is: without a token
        anybody may ask, as often as he likes.
        """
        if self._next is None:
            self._next = asyncio.create_task(self._write())
        return await asyncio.shield(self._next)

    async def _write(self) -> bytes:
        async with self._writing:
            await asyncio.sleep(self._free_at - time.monotonic())
            self._next = None  # Who asks from now on is to see what is counted from now on.
            started = time.monotonic()
            self.sample()
            try:
                return await asyncio.to_thread(generate_latest, self._shown)
            finally:
                now = time.monotonic()
                self._free_at = now + (now - started)


def _forget_the_dead(directory: Path) -> None:
    """Remove what is live no more: the gauges of workers that have ended. Others that start may do so as well."""
    for file in directory.glob("gauge_live*_*.db"):
        pid = int(file.stem.rpartition("_")[2])
        if not Path(f"/proc/{pid}").exists():
            file.unlink(missing_ok=True)
