"""What the pages of one process share: the history of its metrics, and the health of its stores."""

import contextlib
from collections.abc import AsyncIterator

from .health import Health
from .history import History
from .sampler import Families, Sampler, timed


class Console:
    """The console of one process. `families` returns the metrics, as a registry's `collect` does; from any thread."""

    def __init__(self, families: Families) -> None:
        self.history = History()
        self.health = Health()
        self._sampler = Sampler(self.history, lambda: timed(families))

    def looked(self) -> None:
        """Take note that somebody looks at a page."""
        self._sampler.looked()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Follow the metrics for as long as the context lasts."""
        try:
            async with self._sampler.running():
                yield
        finally:
            await self.health.close()
