"""Reads the service's metrics again and again, in a thread, and never for more than a small share of the time.

Often while somebody looks, seldom otherwise, so that whoever is called finds the last minutes there already; and the
more there is to read (a thousand tables), the less often.
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
"""How long after a page was asked for somebody is taken to be looking."""

SHARE_MAX = 0.01
"""Which share of a core reading may take."""

Families = Callable[[], Iterable[Metric]]
"""Returns the metrics, which are gathered only while they are gone through: that is done in a thread."""


async def timed(families: Families) -> tuple[Reading, float]:
    """Return what the metrics say, and how many seconds of a core it took to read them."""
    return await asyncio.to_thread(_timed, families())


def _timed(families: Iterable[Metric]) -> tuple[Reading, float]:
    started = time.thread_time()
    reading = read(families)
    return reading, time.thread_time() - started


class Sampler:
    """Fills a history. `reading` returns a reading and what it cost, in seconds of a core."""

    def __init__(self, history: History, reading: Callable[[], Awaitable[tuple[Reading, float]]]) -> None:
        self._history = history
        self._reading = reading
        self._looked_at = float("-inf")
        self._looked = asyncio.Event()

    def looked(self) -> None:
        """Take note that somebody looks."""
        if not self._watched:
            self._looked.set()
        self._looked_at = _now()

    async def run(self) -> None:
        """Read until cancelled."""
        while True:
            cost_s = await self._read_once()
            self._looked.clear()
            await self._pause(cost_s / SHARE_MAX)

    @property
    def _watched(self) -> bool:
        return _now() - self._looked_at < WATCHED_S

    async def _read_once(self) -> float:
        try:
            reading, cost_s = await self._reading()
        except Exception:  # a page without plots is better than a page that stays as it was
            log.exception("the metrics cannot be read for the console")
            return 0.0
        self._history.add(_now(), reading)
        return cost_s

    async def _pause(self, least_s: float) -> None:
        """Wait until the next reading is due; whoever comes to look meanwhile does not wait for it."""
        await asyncio.sleep(max(EVERY_S, least_s))
        if not self._watched:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(UNWATCHED_EVERY_S - EVERY_S):
                    await self._looked.wait()


def _now() -> float:
    return asyncio.get_running_loop().time()
