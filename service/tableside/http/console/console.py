"""The state that the pages of one process share: the history of its metrics, and the health of its stores."""

from .health import Health
from .history import History
from .sampler import Families, Sampler, read_timed


class Console:
    """The console of one of `workers` processes. `families` returns the metrics, as a registry's `collect` does."""

    def __init__(self, families: Families, workers: int = 1) -> None:
        self.workers = workers
        self.history = History()
        self.health = Health()
        self._sampler = Sampler(self.history, lambda: read_timed(families))

    def mark_viewed(self) -> None:
        """Record that a page was requested, so that metrics are sampled more often."""
        self._sampler.mark_viewed()

    async def run(self) -> None:
        """Sample the metrics until cancelled."""
        try:
            await self._sampler.run()
        finally:
            await self.health.close()
