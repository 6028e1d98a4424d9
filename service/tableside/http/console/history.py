"""The last minutes of what was counted: a bounded ring of readings, and what changed between them.

Knows nothing of where readings come from, or of pages.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import pairwise

import msgspec

from .counts import NOTHING, Change, Counts
from .reading import Reading

SPAN_S = 600.0
"""How far back the pages look."""

SAMPLES_MAX = 300
ROWS_MAX = 30_000
"""How many rows, of some 500 bytes, all samples hold together; rows of idle tables are shared, and count too."""

NOW_S = 15.0
"""Over how many seconds "now" is counted."""


class Sample(msgspec.Struct, frozen=True):
    """A reading, and when it was made, in seconds of a clock that never goes back."""

    at: float
    reading: Reading

    def row(self, table: str | None) -> Counts:
        """Return what was counted of a table, or of all for None."""
        return self.reading.total if table is None else self.reading.tables.get(table, NOTHING)


class History:
    """Samples, the oldest first."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque()
        self._rows = 0
        self._before: Sample | None = None
        self._spaced: dict[float, list[Sample]] = {}

    @property
    def latest(self) -> Sample | None:
        """Return the last sample."""
        return self._samples[-1] if self._samples else None

    def __len__(self) -> int:
        return len(self._samples)

    def add(self, at: float, reading: Reading) -> None:
        """Keep a reading, and let go of what is too old or too much."""
        tables = reading.tables
        if self._samples:
            before = self._samples[-1].reading.tables
            # The row of a table that nobody asked is the one before it, so that it takes no memory.
            tables = {name: old if (old := before.get(name)) == row else row for name, row in tables.items()}
        self._samples.append(Sample(at, msgspec.structs.replace(reading, tables=tables)))
        self._rows += len(tables)
        while self._too_much(at):
            self._rows -= len(self._samples.popleft().reading.tables)
        self._before = self._sample_before_now()
        self._spaced.clear()

    def now(self, table: str | None = None) -> Change | None:
        """Return what happened lately in a table, or in all; None until there are two samples."""
        if (before := self._before) is None:
            return None
        last = self._samples[-1]
        return Change(last.at - before.at, before.row(table), last.row(table))

    def changes(self, table: str | None = None, *, step_s: float) -> Iterator[tuple[float, Change]]:
        """Yield what happened in steps of that many seconds, each with how many seconds ago it ended."""
        if (latest := self.latest) is None:
            return
        if (spaced := self._spaced.get(step_s)) is None:
            # Every table is drawn of the same samples.
            spaced = self._spaced[step_s] = list(_first_of_each(step_s, self._samples))
        for before, after in pairwise(spaced):
            yield latest.at - after.at, Change(after.at - before.at, before.row(table), after.row(table))

    def _sample_before_now(self) -> Sample | None:
        if len(self._samples) < 2:
            return None
        first, last = self._samples[0], self._samples[-1]
        return next(one for one in reversed(self._samples) if one is first or one.at <= last.at - NOW_S)

    def _too_much(self, at: float) -> bool:
        first = self._samples[0]
        return len(self._samples) > 2 and (
            len(self._samples) > SAMPLES_MAX or self._rows > ROWS_MAX or first.at < at - SPAN_S
        )


def _first_of_each(step_s: float, samples: Iterable[Sample]) -> Iterator[Sample]:
    """Yield the first sample of every step of the clock, so that what was drawn once is drawn again the same."""
    step = None
    for sample in samples:
        if sample.at // step_s != step:
            step = sample.at // step_s
            yield sample
