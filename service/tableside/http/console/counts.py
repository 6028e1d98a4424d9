"""Counters of one table since the service started, and the difference between two states of them."""

from array import array
from collections.abc import Iterable, Sequence
from functools import lru_cache

import msgspec

from ...catalog import BUCKETS_S

SUCCESSES = ("found", "absent", "written", "created", "replayed", "dropped")

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

NAMES = (
    *("reads", "writes", *SUCCESSES, *FAILURES, REFUSED, SHED),
    *("cache hit", "cache miss", "cache coalesced", "cache bypassed"),
    *("calls", "calls failed", "calls seconds"),
    *("read limit", "write limit", "retries", "given up", "waited", "crowded out", "timeouts"),
    *_BUCKETS,
)
"""The names of the counters."""

_INDEXES = {name: index for index, name in enumerate(NAMES)}


@lru_cache(maxsize=64)
def bucket(bound: str) -> str:
    """Return the counter name of a latency bucket, for the `le` label of the metric."""
    return f"le {float(bound)}"


class Counts:
    """The counters of one table, by name. They never decrease."""

    __slots__ = ("_values",)

    def __init__(self) -> None:
        self._values = array("d", bytes(8 * len(NAMES)))

    def __getitem__(self, name: str) -> float:
        return self._values[_INDEXES[name]]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Counts) and self._values == other._values

    __hash__ = None  # type: ignore[assignment]  # counters are mutable

    def add(self, name: str, count: float) -> None:
        """Increase a counter. Ignore a name that is not in NAMES."""
        if (index := _INDEXES.get(name)) is not None:
            self._values[index] += count


NOTHING = Counts()


class Change(msgspec.Struct, frozen=True):
    """The difference between two states of the counters, `seconds` apart."""

    seconds: float
    before: Counts
    after: Counts

    def __getitem__(self, name: str) -> float:
        """Return the increase of a counter, or 0 if it decreased, which means that it was reset."""
        return max(0.0, self.after[name] - self.before[name])

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
        return _share(self.sum(FAILURES), self.operations)

    @property
    def hit_share(self) -> float | None:
        """Return the share of gets that were cache hits, or None if there were no gets."""
        return _share(self["cache hit"], self.sum(("cache hit", "cache miss", "cache coalesced", "cache bypassed")))

    def latency_s(self, share: float) -> float | None:
        """Return a quantile of the latency, such as 0.99, or None if there were no operations."""
        return quantile(share, _cumulative(self))


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _cumulative(change: Change) -> Sequence[tuple[float, float]]:
    return [(bound, change[name]) for bound, name in zip(BOUNDS_S, _BUCKETS, strict=True)]


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
