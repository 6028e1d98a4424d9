"""What the pages of one process share: the history of its metrics, and the health of its stores."""

from .health import Health
from .history import History
from .sampler import Families, Sampler, timed


class Console:
    """The console of one process. `families` returns the metrics, as a registry's `collect` does."""

    def __init__(self, families: Families) -> None:
        self.history = History()
        self.health = Health()
        self._sampler = Sampler(self.history, lambda: timed(families))

    def looked(self) -> None:
        """Take note that somebody looks at a page."""
        self._sampler.looked()

    async def run(self) -> None:
        """Follow the metrics until cancelled."""
        try:
            await self._sampler.run()
        finally:
            await self.health.close()
