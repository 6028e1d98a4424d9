"""Scans of a table in the order of keys, and splits of a table, in short turns of a reader thread.

Between two turns of a scan the thread serves other reads. A scan that its caller has given up ends with its turn.
"""

import time
from collections.abc import Iterator
from functools import partial

from ...core import (
    Page,
    PageBuilder,
    Range,
    Scan,
    TableError,
    TableSpec,
    prefix_end,
    ranges_between,
    scan_range,
)
from .database import Database
from .records import read

KEYS_PER_TURN_MAX = 1000
"""How many keys one turn of a scan examines."""

BYTES_PER_TURN_MAX = 4 * 2**20
"""How many bytes one turn of a scan examines. The record that exceeds this is the turn's last one."""

RANGES_PER_SPLIT = 16
"""How many ranges of keys are found for each split: more make the splits more even."""

TURN_S = 0.005
"""How long one turn halves ranges. A search that passes many deleted records takes milliseconds."""


class Scanner:
    """Scans and splits one table: the keys of the database that begin with `prefix`."""

    def __init__(self, database: Database, spec: TableSpec, prefix: bytes) -> None:
        self._database = database
        self._spec = spec
        self._prefix = prefix

    async def page(self, scan: Scan) -> Page:
        """Read a page. It ends early when it has skipped PAGE_SKIPPED_MAX expired records."""
        page, rest = PageBuilder(scan), scan_range(self._spec, scan)
        while not rest.empty:
            last = await self._database.run_scan(partial(self._turn, page, rest))
            if last is None or page.complete:
                return Page(page.records, last)
            rest = Range(last + b"\0", rest.high)
        return Page(page.records, None)

    async def splits(self, count_max: int) -> list[bytes]:
        """Divide the table into parts of similar size."""
        ranges = await self._ranges(count_max * RANGES_PER_SPLIT)
        count, prefix_length = max(1, min(count_max, len(ranges))), len(self._prefix)
        boundaries = [ranges[len(ranges) * index // count].low[prefix_length:] for index in range(1, count)]
        return [part.to_split() for part in ranges_between(boundaries)]

    def _turn(self, page: PageBuilder, key_range: Range) -> bytes | None:
        """Examine the next keys of a range. Return the last one, or None if no key is left."""
        now, prefix_length = self._database.now_ms(), len(self._prefix)
        last, count, size_bytes = b"", 0, 0
        for key, raw in self._database.items(self._in_database(key_range)):
            if page.complete or count == KEYS_PER_TURN_MAX or size_bytes > BYTES_PER_TURN_MAX:
                return last
            last, count, size_bytes = key[prefix_length:], count + 1, size_bytes + len(raw)
            found = read(raw, now)
            if isinstance(found, TableError):
                raise found
            if found is None:
                page.skip()
            else:
                page.add(self._spec.key.decode(last), found)
        return None

    async def _ranges(self, count_max: int) -> list[Range]:
        """Divide the table's keys: halve every range that contains several, until there are `count_max` ranges."""
        ranges, halved = [self._in_database(Range())], True
        while halved and len(ranges) < count_max:
            halves: list[Range] = []
            rest = iter(ranges)
            while some := await self._database.run_scan(partial(self._halve, rest)):
                halves += some
            halved, ranges = len(halves) > len(ranges), halves
        return ranges

    def _halve(self, ranges: Iterator[Range]) -> list[Range]:
        """Halve the next ranges for `TURN_S`. Return nothing if there are none."""
        halves, until = list[Range](), time.perf_counter() + TURN_S
        for key_range in ranges:
            halves += self._halves(key_range)
            if time.perf_counter() >= until:
                break
        return halves

    def _halves(self, key_range: Range) -> list[Range]:
        first, last = self._database.first_key(key_range), self._database.last_key(key_range)
        if first is None or last is None or first == last:
            return [key_range]
        middle = self._database.first_key(Range(_midpoint(first, last), key_range.high))
        middle = last if middle is None else middle
        return [Range(key_range.low, middle), Range(middle, key_range.high)] if middle > first else [key_range]

    def _in_database(self, key_range: Range) -> Range:
        """Return a range of the table's keys as a range of the database's keys."""
        if key_range.high is None:
            return Range(self._prefix + key_range.low, prefix_end(self._prefix))
        return Range(self._prefix + key_range.low, self._prefix + key_range.high)


def _midpoint(first: bytes, last: bytes) -> bytes:
    """Return bytes half-way between two keys: the common prefix, and the mean of the next eight bytes as numbers."""
    common = 0
    while common < min(len(first), len(last)) and first[common] == last[common]:
        common += 1
    low = int.from_bytes(first[common : common + 8].ljust(8, b"\0"), "big")
    high = int.from_bytes(last[common : common + 8].ljust(8, b"\0"), "big")
    return first[:common] + ((low + high + 1) // 2).to_bytes(8, "big")
