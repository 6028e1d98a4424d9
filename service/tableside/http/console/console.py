"""The state that the pages of one process share: the history of its metrics, which are sampled regularly."""

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from itertools import pairwise

import msgspec
from prometheus_client import Metric

from .counts import Change, Counts, Reading, read

log = logging.getLogger(__name__)

EVERY_S = 2.0
UNWATCHED_EVERY_S = 10.0
WATCHED_S = 60.0
"""How long the console counts as in use after a request for a page."""

SHARE_MAX = 0.01
"""The maximum share of a core that readings take."""

SPAN_S = 600.0
"""The time span of the plots."""

SAMPLES_MAX = 300
ROWS_MAX = 10_000
"""The maximum number of rows in all samples, at about 2 KB each. Shared rows of idle tables count too."""

NOW_S = 15.0
"""The time span of the current values."""


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


class Sample(msgspec.Struct, frozen=True):
    """A reading and its time, in seconds of a monotonic clock."""

    at: float
    reading: Reading

    def row(self, table: str | None) -> Counts:
        """Return the counters of a table, or of all tables for None."""
        return self.reading.total if table is None else self.reading.tables.get(table, {})


class History:
    """Samples, oldest first."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque()
        self._rows = 0

    @property
    def latest(self) -> Sample | None:
        """Return the latest sample, if there is one."""
        return self._samples[-1] if self._samples else None

    def __len__(self) -> int:
        return len(self._samples)

    def add(self, at: float, reading: Reading) -> None:
        """Add a reading, and drop samples that exceed the limits on age, samples or rows."""
        tables = reading.tables
        if self._samples:
            before = self._samples[-1].reading.tables
            # An unchanged row is shared with the previous sample, so that idle tables take no memory.
            tables = {name: old if (old := before.get(name)) == row else row for name, row in tables.items()}
        self._samples.append(Sample(at, msgspec.structs.replace(reading, tables=tables)))
        self._rows += len(tables)
        while self._exceeds_limits(at):
            self._rows -= len(self._samples.popleft().reading.tables)

    def now(self, table: str | None = None) -> Change | None:
        """Return the recent change of a table, or of all tables, or None until there are two samples."""
        if len(self._samples) < 2:
            return None
        first, last = self._samples[0], self._samples[-1]
        recent = (sample for sample in reversed(self._samples) if sample is first or sample.at <= last.at - NOW_S)
        before = next(recent)
        return Change(last.at - before.at, before.row(table), last.row(table))

    def changes(self, table: str | None = None, *, step_s: float) -> Iterator[tuple[float, Change]]:
        """Yield the change in each step of `step_s` seconds, after the age of its end in seconds."""
        for before, after in pairwise(_first_of_each(step_s, self._samples)):
            yield self._samples[-1].at - after.at, Change(after.at - before.at, before.row(table), after.row(table))

    def _exceeds_limits(self, at: float) -> bool:
        first = self._samples[0]
        return len(self._samples) > 2 and (
            len(self._samples) > SAMPLES_MAX or self._rows > ROWS_MAX or first.at < at - SPAN_S
        )


def _first_of_each(step_s: float, samples: Iterable[Sample]) -> Iterator[Sample]:
    """Yield the first sample in every step of the clock, so that a plotted point stays the same in later plots."""
    step = None
    for sample in samples:
        if sample.at // step_s != step:
            step = sample.at // step_s
            yield sample
