"""Samples the service's metrics periodically in a thread, with a limit on the share of CPU time.

The sampler reads often while the console is in use. Otherwise it reads rarely, so that the last minutes are available
when an operator opens the console. The more expensive a reading is (a thousand tables), the rarer it is.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterable

from prometheus_client import Metric

from .history import History
from .reading import Reading, read

log = logging.getLogger(__name__)

EVERY_S = 2.0
UNWATCHED_EVERY_S = 10.0
WATCHED_S = 60.0
"""How long the console counts as in use after a request for a page."""

SHARE_MAX = 0.01
"""The maximum share of a core that readings take."""

Families = Callable[[], Iterable[Metric]]
"""Returns the metrics. They are collected during iteration, which happens in a thread."""


async def read_timed(families: Families) -> tuple[Reading, float]:
    """Return a reading of the metrics, and its CPU time in seconds."""
    return await asyncio.to_thread(_read_timed, families())


def _read_timed(families: Iterable[Metric]) -> tuple[Reading, float]:
    started = time.thread_time()
    reading = read(families)
    return reading, time.thread_time() - started


class Sampler:
    """Adds readings to a history. `reading` returns a reading and its CPU time in seconds."""

    def __init__(self, history: History, reading: Callable[[], Awaitable[tuple[Reading, float]]]) -> None:
        self._history = history
        self._reading = reading
        self._viewed_at = float("-inf")
        self._viewed = asyncio.Event()

    def mark_viewed(self) -> None:
        """Record that a page was requested."""
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
        self._history.add(time.monotonic(), reading)
        return cost_s

    async def _pause(self, pause_min_s: float) -> None:
        """Wait until the next reading is due. A page request ends a long wait early."""
        await asyncio.sleep(max(EVERY_S, pause_min_s))
        if not self._watched:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(UNWATCHED_EVERY_S - EVERY_S):
                    await self._viewed.wait()
