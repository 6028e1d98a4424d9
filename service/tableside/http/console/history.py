"""The counters of the last minutes: a bounded queue of readings, and the changes between them."""

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import pairwise

import msgspec

from .counts import Change, Counts, Reading

SPAN_S = 600.0
"""The time span of the plots."""

SAMPLES_MAX = 300
ROWS_MAX = 10_000
"""The maximum number of rows in all samples, at about 2 KB each. Shared rows of idle tables count too."""

NOW_S = 15.0
"""The time span of the current values."""


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
