"""One page of a scan: records that are read, within the limits of the page, for names of Redis keys."""

import asyncio
import math
from collections.abc import Sequence

import msgspec

from ...core import NOT_READ, READ_BYTES_MAX, Outcome, PageBuilder, Record, Results, Scan, TableError
from .keys import NamedKey
from .reads import SCRIPT_RECORDS_MAX, RecordReader

FIRST_VALUES = SCRIPT_RECORDS_MAX + 1
"""How many values to read first, when their size is unknown. The script would not return them in columns."""


class Reading(msgspec.Struct, frozen=True):
    """Records to add to a page, and their outcomes if they are being read."""

    candidates: Sequence[NamedKey]
    outcomes: asyncio.Future[Sequence[Outcome]] | None = None


class NamedPageBuilder(PageBuilder):
    """Reads and collects the records of one page. `absent` are the records that were not there."""

    def __init__(self, scan: Scan, reads: RecordReader) -> None:
        super().__init__(scan)
        self.absent: list[NamedKey] = []
        self._scan = scan
        self._reads = reads

    def read_ahead(self, candidates: Sequence[NamedKey]) -> Reading:
        """Start to read records, while others are being read, if both probably fit into the page."""
        ahead = self.count > 0 and self.fits(2 * len(candidates))
        return Reading(candidates, asyncio.ensure_future(self._read(candidates)) if ahead else None)

    async def fill(self, reading: Reading) -> int:
        """Add records until the page is complete, and return the number of candidates that were processed."""
        candidates, taken = reading.candidates, 0
        if reading.outcomes is not None:
            taken = self._add(candidates, await reading.outcomes)
        while taken < len(candidates) and not self.complete:
            batch = candidates[taken : taken + self._read_count]
            taken += self._add(batch, await self._read(batch))
        return taken

    async def _read(self, candidates: Sequence[NamedKey]) -> Sequence[Outcome]:
        return await self._reads.get_names([name for name, _ in candidates], math.inf)

    def _add(self, candidates: Sequence[NamedKey], outcomes: Sequence[Outcome]) -> int:
        if isinstance(outcomes, Results) and self.add_all([key for _, key in candidates], outcomes):
            return len(candidates)
        for taken, ((name, key), outcome) in enumerate(zip(candidates, outcomes, strict=True)):
            if self.complete or outcome is NOT_READ:
                return taken
            if isinstance(outcome, TableError):
                raise outcome.of_scan(key)
            if isinstance(outcome, Record):
                self.add(key, outcome)
            else:
                self.absent.append((name, key))
        return len(candidates)

    def needs_more_than(self, count: int) -> bool:
        """Whether the page would have less than three quarters of its records after `count` more.

        The rest may take many SCANs.
        """
        return not self.complete and (self.room - count) * 4 > self._scan.limit

    def fits(self, count: int) -> bool:
        """Whether so many more records are probably within the limit of bytes."""
        return not self.count or count <= self._read_count

    @property
    def _read_count(self) -> int:
        """How many values to read in one call: as many as fit if they have the average size of those so far."""
        if not self.count:
            return FIRST_VALUES
        left_bytes = max(0, min(READ_BYTES_MAX, self.bytes_left))
        return 1 + left_bytes * self.count // max(1, self._scan.bytes_max - self.bytes_left)
