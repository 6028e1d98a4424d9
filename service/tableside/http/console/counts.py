"""What has been counted of one table since the service began, as a row of numbers, and how two such rows differ."""

from array import array
from collections.abc import Iterable, Sequence
from functools import lru_cache

import msgspec

from ...catalog import BUCKETS_S
from .quantiles import quantile

SUCCESSES = ("found", "absent", "written", "created", "replayed")

FAILURES = (
    "throttled",
    "overloaded",
    "store_unavailable",
    "deadline_exceeded",
    "contended",
    "record_unreadable",
    "internal",
)
"""Outcomes that are not the caller's doing: what the error share counts."""

REFUSED = "refused"
"""Stands for every other outcome: the operation could not be done as it was asked, which is nobody's illness."""

BOUNDS_S = (*BUCKETS_S, float("inf"))

_BUCKETS = tuple(f"le {bound}" for bound in BOUNDS_S)

NAMES = (
    *("reads", "writes", *SUCCESSES, *FAILURES, REFUSED),
    *("cache hit", "cache miss", "cache coalesced", "cache bypassed"),
    *("calls", "calls failed", "calls seconds"),
    *("read limit", "write limit", "retries", "given up", "waited", "crowded out", "timeouts"),
    *_BUCKETS,
)
"""What there is a number of, by name."""

_PLACES = {name: place for place, name in enumerate(NAMES)}


@lru_cache(maxsize=64)
def bucket(bound: str) -> str:
    """Return the name of a bucket of latencies by the label that Prometheus gives it."""
    return f"le {float(bound)}"


class Counts:
    """One row of numbers, by name; they only ever rise."""

    __slots__ = ("_numbers",)

    def __init__(self) -> None:
        self._numbers = array("d", bytes(8 * len(NAMES)))

    def __getitem__(self, name: str) -> float:
        return self._numbers[_PLACES[name]]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Counts) and self._numbers == other._numbers

    __hash__ = None  # type: ignore[assignment]  # it changes while it is read

    def add(self, name: str, count: float) -> None:
        """Count so much more; what has no place in a row is not counted."""
        if (place := _PLACES.get(name)) is not None:
            self._numbers[place] += count


NOTHING = Counts()


class Change(msgspec.Struct, frozen=True):
    """What happened between two moments, some seconds apart."""

    seconds: float
    before: Counts
    after: Counts

    def __getitem__(self, name: str) -> float:
        """Return how much a number rose; one that fell began anew, and counts as not risen."""
        return max(0.0, self.after[name] - self.before[name])

    def sum(self, names: Iterable[str]) -> float:
        """Return how much these numbers rose together."""
        return sum(self[name] for name in names)

    def per_s(self, *names: str) -> float:
        """Return how fast these numbers rose together, by the second."""
        return self.sum(names) / self.seconds

    @property
    def operations(self) -> float:
        """Return how many operations ended."""
        return self["reads"] + self["writes"]

    @property
    def failed(self) -> float | None:
        """Return which share of the operations failed; None where there was none."""
        return _share(self.sum(FAILURES), self.operations)

    @property
    def hits(self) -> float | None:
        """Return which share of the gets the cache answered; None where it was not asked."""
        return _share(self["cache hit"], self.sum(("cache hit", "cache miss", "cache coalesced", "cache bypassed")))

    def latency_s(self, share: float) -> float | None:
        """Return the time within which that share of what was asked was answered; None where nothing was asked."""
        return quantile(share, _cumulative(self))


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _cumulative(change: Change) -> Sequence[tuple[float, float]]:
    return [(bound, change[name]) for bound, name in zip(BOUNDS_S, _BUCKETS, strict=True)]
