"""The state that the pages of one process share: readings of its metrics, which are taken regularly.

A reading has the counters of each table since the service started. Pages show differences.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TypeAlias

import msgspec
from prometheus_client import Metric

from ...catalog import BUCKETS_S
from ...core import FLAGS

log = logging.getLogger(__name__)

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
_CACHE_OUTCOMES = ("cache hit", "cache miss", "cache bypassed")

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

    def per_s(self, name: str) -> float:
        """Return the increase of a counter per second."""
        return self[name] / self.seconds

    @property
    def operations(self) -> float:
        """Return the number of completed operations."""
        return self["reads"] + self["writes"]

    @property
    def failed_share(self) -> float | None:
        """Return the share of operations that failed, or None if there were no operations."""
        return sum(self[name] for name in FAILURES) / self.operations if self.operations else None

    @property
    def hit_share(self) -> float | None:
        """Return the share of gets that were cache hits, or None if there were no gets."""
        gets = sum(self[name] for name in _CACHE_OUTCOMES)
        return self["cache hit"] / gets if gets else None

    def latency_s(self, share: float) -> float | None:
        """Return a quantile of the latency, such as 0.99, or None if there were no operations.

        As PromQL's `histogram_quantile`, it is interpolated linearly within a bucket. In the last one, whose bound is
        infinite, it is the bound before.
        """
        if not (count := self[_BUCKETS[-1]]):
            return None
        rank, lower, below = share * count, 0.0, 0.0
        for bound, name in zip(BUCKETS_S, _BUCKETS, strict=False):
            if (cumulative := self[name]) >= rank and cumulative > below:
                return lower + (bound - lower) * (rank - below) / (cumulative - below)
            lower, below = bound, cumulative
        return lower


class Reading(msgspec.Struct, frozen=True):
    """The counters of each table, the requests that were shed, and the gauges of requests in flight."""

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
            for sample in family.samples:
                if (names := _NAMES.get(sample.name)) is not None and sample.value:
                    row = reading.tables.setdefault(sample.labels["table"], {})
                    for name in names(sample.labels):
                        row[name] = row.get(name, 0.0) + sample.value
    return reading


_KNOWN = frozenset(("found", "absent", "written", *FLAGS, "dropped", *FAILURES))


def _operation(labels: Mapping[str, str]) -> Sequence[str]:
    direction = "writes" if labels["operation"] in ("put", "update", "delete") else "reads"
    return direction, labels["outcome"] if labels["outcome"] in _KNOWN else REFUSED


@lru_cache(maxsize=64)
def _bucket(bound: str) -> str:
    return f"le {float(bound)}"


_NAMES: Mapping[str, Callable[[Mapping[str, str]], Sequence[str]]] = {
    "tableside_operations_total": _operation,
    "tableside_operation_duration_seconds_bucket": lambda labels: (_bucket(labels["le"]),),
    "tableside_cache_gets_total": lambda labels: (f"cache {labels['outcome']}",),
}
"""By sample name, a function from the sample's labels to the counters that it increases."""

FAMILIES = frozenset(name.removesuffix("_total").removesuffix("_bucket") for name in _NAMES)

EVERY_S = 5.0

SHARE_MAX = 0.01
"""The maximum share of a core that readings take. With a thousand tables they are rarer than `EVERY_S`."""

READINGS = 4
"""The number of readings that are kept. Pages show the change since the oldest, at least 15 seconds ago."""


class Console:
    """The console of one of `workers` processes. `reading` returns a reading and its CPU time in seconds."""

    def __init__(self, reading: Callable[[], Awaitable[tuple[Reading, float]]], workers: int = 1) -> None:
        self.workers = workers
        self._reading = reading
        self._readings: deque[tuple[float, Reading]] = deque(maxlen=READINGS)

    async def run(self) -> None:
        """Take readings until cancelled."""
        while True:
            cost_s = 0.0
            try:
                reading, cost_s = await self._reading()
            except Exception:  # show pages without current numbers rather than stop
                log.exception("the metrics cannot be read for the console")
            else:
                self._readings.append((time.monotonic(), reading))
            await asyncio.sleep(max(EVERY_S, cost_s / SHARE_MAX))

    @property
    def in_flight(self) -> Mapping[str, float]:
        """Return the gauges of requests in flight, none before the first reading."""
        return self._readings[-1][1].in_flight if self._readings else {}

    def now(self, table: str | None = None) -> Change | None:
        """Return the recent change of a table, or of what no table has, or None until there are two readings."""
        if len(self._readings) < 2:
            return None
        (began, before), (ended, after) = self._readings[0], self._readings[-1]
        both = (one.total if table is None else one.tables.get(table, {}) for one in (before, after))
        return Change(ended - began, *both)


async def read_timed(families: Callable[[], Iterable[Metric]]) -> tuple[Reading, float]:
    """Return a reading of the metrics, and its CPU time in seconds.

    `families` returns the metrics, which are collected during iteration, in a thread.
    """

    def timed(metrics: Iterable[Metric]) -> tuple[Reading, float]:
        started = time.thread_time()
        return read(metrics), time.thread_time() - started

    return await asyncio.to_thread(timed, families())
