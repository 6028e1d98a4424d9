"""The state that the pages of one process share: the history of its metrics, and the health of its stores."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping

from prometheus_client import Metric

from ...core import StoreUnavailable
from .counts import Reading, read
from .history import History

log = logging.getLogger(__name__)

EVERY_S = 2.0
UNWATCHED_EVERY_S = 10.0
WATCHED_S = 60.0
"""How long the console counts as in use after a request for a page."""

SHARE_MAX = 0.01
"""The maximum share of a core that readings take."""

AGE_MAX_S = 2.0
"""How long the health of stores is reused, so that the number of viewers does not affect the load on stores."""

WAIT_MAX_S = 0.25
"""How long a page waits for the health of stores."""

Stores = Mapping[str, StoreUnavailable | None]


class Console:
    """The console of one of `workers` processes. `reading` returns a reading and its CPU time in seconds.

    It reads often while the console is in use. Otherwise it reads rarely, so that the last minutes are available when
    an operator opens the console. The more expensive a reading is (a thousand tables), the rarer it is.
    """

    def __init__(self, reading: Callable[[], Awaitable[tuple[Reading, float]]], workers: int = 1) -> None:
        self.workers = workers
        self.history = History()
        self.health = Health()
        self._reading = reading
        self._viewed_at = float("-inf")
        self._viewed = asyncio.Event()

    def mark_viewed(self) -> None:
        """Record that a page was requested, so that metrics are sampled more often."""
        if not self._watched:
            self._viewed.set()
        self._viewed_at = time.monotonic()

    async def run(self) -> None:
        """Take readings until cancelled."""
        try:
            while True:
                cost_s = await self._read_once()
                self._viewed.clear()
                await self._pause(cost_s / SHARE_MAX)
        finally:
            await self.health.close()

    @property
    def _watched(self) -> bool:
        return time.monotonic() - self._viewed_at < WATCHED_S

    async def _read_once(self) -> float:
        try:
            reading, cost_s = await self._reading()
        except Exception:  # show pages without current numbers rather than stop sampling
            log.exception("the metrics cannot be read for the console")
            return 0.0
        self.history.add(time.monotonic(), reading)
        return cost_s

    async def _pause(self, pause_min_s: float) -> None:
        """Wait until the next reading is due. A page request ends a long wait early."""
        await asyncio.sleep(max(EVERY_S, pause_min_s))
        if not self._watched:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(UNWATCHED_EVERY_S - EVERY_S):
                    await self._viewed.wait()


async def read_timed(families: Callable[[], Iterable[Metric]]) -> tuple[Reading, float]:
    """Return a reading of the metrics, and its CPU time in seconds.

    `families` returns the metrics, which are collected during iteration, in a thread.
    """
    return await asyncio.to_thread(_read_timed, families())


def _read_timed(families: Iterable[Metric]) -> tuple[Reading, float]:
    started = time.thread_time()
    reading = read(families)
    return reading, time.thread_time() - started


class Health:
    """The last known health of the stores."""

    def __init__(self) -> None:
        self._known: Stores = {}
        self._known_at = float("-inf")
        self._pinging: asyncio.Task[None] | None = None

    async def stores(self, ping: Callable[[], Awaitable[Stores]]) -> Stores:
        """Return the error or None of each store. Stores that have not answered yet are missing.

        `ping` checks all stores, as `Catalog.ping` does. A store that does not answer does not delay the page: it
        returns the last known result, and a later call returns the new one.
        """
        if time.monotonic() - self._known_at >= AGE_MAX_S:
            if self._pinging is None or self._pinging.done():
                self._pinging = asyncio.create_task(self._ping(ping))
            await asyncio.wait([self._pinging], timeout=WAIT_MAX_S)
        return self._known

    async def close(self) -> None:
        """Cancel a check in progress."""
        if self._pinging is not None:
            self._pinging.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._pinging

    async def _ping(self, ping: Callable[[], Awaitable[Stores]]) -> None:
        self._known = await ping()
        self._known_at = time.monotonic()
