"""The state that the pages of one process share: the history of its metrics, which are sampled regularly.

A reading of the metrics has the counters of each table since the service started. Pages show differences.
"""

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import TypeAlias

import msgspec
from prometheus_client import Metric

from ...catalog import BUCKETS_S
from ...core import FLAGS

log = logging.getLogger(__name__)

SUCCESSES = ("found", "absent", "written", *reversed(FLAGS), "dropped")

FAILURES = (
    "throttled",
    "overloaded",
    "store_unavailable",
    "deadline_exceeded",
    "contended",
    "record_unreadable",
    "internal",
)
"""Outcomes that count as failures: their cause is not the request."""

REFUSED = "refused"
"""All other outcomes. The operation was rejected because of the request, so the table is not at fault."""

BOUNDS_S = (*BUCKETS_S, float("inf"))

SHED = "shed"
"""Requests that were shed. Only the counters of all tables together have it, because such requests name no table."""

_BUCKETS = tuple(f"le {bound}" for bound in BOUNDS_S)
_CACHE_OUTCOMES = ("cache hit", "cache miss", "cache coalesced", "cache bypassed")

Counts: TypeAlias = dict[str, float]
"""The counters of one table, by name. They never decrease, and an absent counter is 0."""


class Change(msgspec.Struct, frozen=True):
    """The difference between two states of the counters, `seconds` apart."""

    seconds: float
    before: Counts
    after: Counts

    def __getitem__(self, name: str) -> float:
        """Return the increase of a counter, or 0 if it decreased, which means that it was reset."""
        return max(0.0, self.after.get(name, 0.0) - self.before.get(name, 0.0))

    def sum(self, names: Iterable[str]) -> float:
        """Return the total increase of several counters."""
        return sum(self[name] for name in names)

    def per_s(self, *names: str) -> float:
        """Return the total increase of several counters per second."""
        return self.sum(names) / self.seconds

    @property
    def operations(self) -> float:
        """Return the number of completed operations."""
        return self["reads"] + self["writes"]

    @property
    def failed_share(self) -> float | None:
        """Return the share of operations that failed, or None if there were no operations."""
        return self.sum(FAILURES) / self.operations if self.operations else None

    @property
    def hit_share(self) -> float | None:
        """Return the share of gets that were cache hits, or None if there were no gets."""
        gets = self.sum(_CACHE_OUTCOMES)
        return self["cache hit"] / gets if gets else None

    def latency_s(self, share: float) -> float | None:
        """Return a quantile of the latency, such as 0.99, or None if there were no operations."""
        return quantile(share, [(bound, self[name]) for bound, name in zip(BOUNDS_S, _BUCKETS, strict=True)])


def quantile(share: float, buckets: Sequence[tuple[float, float]]) -> float | None:
    """Return the quantile of a histogram as PromQL's `histogram_quantile` does, or None if it has no observations.

    `buckets` are pairs of an upper bound and the cumulative number of observations. The last bound is infinite. The
    value is interpolated linearly within a bucket. For the last bucket, the bound before it is the result.
    """
    count = buckets[-1][1]
    if not count:
        return None
    rank, lower, below = share * count, 0.0, 0.0
    for bound, cumulative in buckets[:-1]:
        if cumulative >= rank and cumulative > below:
            return lower + (bound - lower) * (rank - below) / (cumulative - below)
        lower, below = bound, cumulative
    return lower


class Reading(msgspec.Struct, frozen=True):
    """The counters of each table and of all tables together, and the gauges of requests in flight."""

    tables: dict[str, Counts]
    total: Counts
    in_flight: dict[str, float]


def read(families: Iterable[Metric]) -> Reading:
    """Read the metrics. Ignore metrics that no page shows."""
    reading = Reading({}, {}, {})
    for family in families:
        if family.name == "tableside_in_flight":
            reading.in_flight.update({sample.labels["what"]: sample.value for sample in family.samples})
        elif family.name == "tableside_shed":
            reading.total[SHED] = sum(one.value for one in family.samples if one.name.endswith("_total"))
        elif family.name in FAMILIES:
            _add(family, reading)
    return reading


def _add(family: Metric, reading: Reading) -> None:
    for sample in family.samples:
        if (names := _NAMES.get(sample.name)) is None:
            continue
        row = reading.tables.setdefault(sample.labels["table"], {})
        for name in names(sample.labels) if sample.value else ():
            for counts in (row, reading.total):
                counts[name] = counts.get(name, 0.0) + sample.value


def _operation(labels: Mapping[str, str]) -> Sequence[str]:
    direction = "writes" if labels["operation"] in ("put", "update", "delete") else "reads"
    return direction, labels["outcome"] if labels["outcome"] in _KNOWN else REFUSED


_KNOWN = frozenset((*SUCCESSES, *FAILURES))


@lru_cache(maxsize=64)
def _bucket(bound: str) -> str:
    return f"le {float(bound)}"


_NAMES: Mapping[str, Callable[[Mapping[str, str]], Sequence[str]]] = {
    "tableside_operations_total": _operation,
    "tableside_operation_duration_seconds_bucket": lambda labels: (_bucket(labels["le"]),),
    "tableside_cache_gets_total": lambda labels: (f"cache {labels['outcome']}",),
    "tableside_store_call_duration_seconds_count": lambda labels: (
        ("calls",) if labels["outcome"] == "ok" else ("calls", "calls failed")
    ),
    "tableside_store_call_duration_seconds_sum": lambda labels: ("calls seconds",),
    "tableside_rate_limit_throttled_total": lambda labels: (f"{labels['direction']} limit",),
    "tableside_caller_limit_throttled_total": lambda labels: (f"{labels['direction']} limit",),
    "tableside_retries_total": lambda labels: ("retries",),
    "tableside_retries_given_up_total": lambda labels: ("given up",),
    "tableside_bulkhead_calls_total": lambda labels: ("waited" if labels["outcome"] == "waited" else "crowded out",),
    "tableside_attempt_timeouts_total": lambda labels: ("timeouts",),
}
"""By sample name, a function from the sample's labels to the counters that it increases."""

FAMILIES = frozenset(
    name.removesuffix("_total").removesuffix("_bucket").removesuffix("_count").removesuffix("_sum") for name in _NAMES
)


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
