"""The state that the pages of one process share: the history of its metrics, which are sampled regularly."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterable

from prometheus_client import Metric

from .counts import Reading, read
from .history import History

log = logging.getLogger(__name__)

EVERY_S = 2.0
UNWATCHED_EVERY_S = 10.0
WATCHED_S = 60.0
"""How long the console counts as in use after a request for a page."""

SHARE_MAX = 0.01
"""The maximum share of a core that readings take."""


class Console:
    """The console of one of `workers` processes. `reading` returns a reading and its CPU time in seconds.

    It reads often while the console is in use. Otherwise it reads rarely, so that the last minutes are available when
    an operator opens the console. The more expensive a reading is (a thousand tables), the rarer it is.
    """

    def __init__(self, reading: Callable[[], Awaitable[tuple[Reading, float]]], workers: int = 1) -> None:
        self.workers = workers
        self.history = History()
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
        while True:
            cost_s = await self._read_once()
            self._viewed.clear()
            await self._pause(cost_s / SHARE_MAX)

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
