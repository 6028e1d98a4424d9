"""The metrics of the service in Prometheus' text format: of one process, or of all workers of a replica together.

Workers write what they count to files in a directory that they share (`PROMETHEUS_MULTIPROC_DIR`, set before they
start); whichever is asked sums them up. Gauges are set when they are asked for, and by workers every second, too.
"""

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from prometheus_client import CollectorRegistry, Gauge, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector

from . import __version__

DIRECTORY_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"


class Exposition:
    """Where metrics are made (`registry`), and how they are shown."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._shown = self.registry
        self._samples: list[Callable[[], None]] = []
        self.directory = os.environ.get(DIRECTORY_VARIABLE)
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
        """Set the gauges of this process."""
        for sample in self._samples:
            sample()

    def collect(self) -> Iterable[Metric]:
        """Return the metrics as they are now."""
        self.sample()
        return self._shown.collect()

    def text(self) -> bytes:
        """Return the metrics."""
        self.sample()
        return generate_latest(self._shown)


def _forget_the_dead(directory: Path) -> None:
    """Remove what is live no more: the gauges of workers that have ended. Others that start may do so as well."""
    for file in directory.glob("gauge_live*_*.db"):
        pid = int(file.stem.rpartition("_")[2])
        if not Path(f"/proc/{pid}").exists():
            file.unlink(missing_ok=True)
