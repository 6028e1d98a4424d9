"""Scans of a table in the order of keys, and splits of a table, in short turns of a reader thread.

Between two turns of a scan the thread serves other reads. A scan that its caller has given up ends with its turn.
"""

import math
import time
from collections.abc import Iterator
from functools import partial
from os.path import commonprefix
from typing import TypeAlias

from ...core import Page, PageBuilder, Range, Scan, TableSpec, even_splits, scan_range
from .database import RECORDS_PER_TURN_MAX, TURN_BYTES_MAX, Database, KeySearch
from .records import read_all

SKIPPED_PER_TURN = 100
"""How many more keys than the page has room for a turn examines after expired records, which take no room."""

PIECES_PER_SPLIT = 16
"""How many pieces of the keys are found for each split: more make the splits more even."""

TURN_S = 0.005
SPLITS_S = 1.0
"""How long one turn, and all of them, halve pieces. A search that passes many deleted or large records takes long."""

Piece: TypeAlias = tuple[bytes, bytes]
"""The first and the last of successive keys in the database."""


class Scanner:
    """Scans and splits one table: the keys of the database that begin with `prefix`."""

    def __init__(self, database: Database, spec: TableSpec, prefix: bytes) -> None:
        self._database = database
        self._spec = spec
        self._prefix, self._end = prefix, prefix[:-1] + b"\1"
        self._in_table = slice(len(prefix), None)

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
        """Divide the table into parts of similar size.

        Halve every piece of its keys that has several, until there are enough pieces or `SPLITS_S` have passed.
        """
        pieces, halved = await self._database.run_scan(self._whole), True
        until = time.perf_counter() + SPLITS_S
        while halved and len(pieces) < count_max * PIECES_PER_SPLIT and time.perf_counter() < until:
            halves: list[Piece] = []
            rest = iter(pieces)
            while some := await self._database.run_scan(partial(self._halve, rest, until)):
                halves += some
            halved, pieces = len(halves) > len(pieces), halves
        return even_splits([first[self._in_table] for first, _ in pieces], count_max)

    def _turn(self, page: PageBuilder, key_range: Range) -> bytes | None:
        """Examine the next keys of a range. Return the last one, or None if no key is left."""
        count_max = min(RECORDS_PER_TURN_MAX, page.room + (SKIPPED_PER_TURN if page.skipped else 0))
        bytes_max = min(TURN_BYTES_MAX, page.bytes_left)
        high = self._end if key_range.high is None else self._prefix + key_range.high
        items, more = self._database.items(Range(self._prefix + key_range.low, high), count_max, bytes_max)
        names, raws = [name[self._in_table] for name, _ in items], [raw for _, raw in items]
        keys, results = self._spec.key.decode_all(names), read_all(raws, self._database.now_ms())
        if not page.add_all(keys, results):
            for position, (key, found) in enumerate(zip(keys, results, strict=True)):
                if page.complete:
                    return names[position - 1]
                page.add(key, found)
        return names[-1] if more else None

    def _whole(self) -> list[Piece]:
        search = self._database.search()
        first, last = search.first(self._prefix), search.last(self._end)
        return [] if first is None or last is None or first > last else [(first, last)]

    def _halve(self, pieces: Iterator[Piece], until: float) -> list[Piece]:
        """Halve the next pieces for `TURN_S`, but none after `until`. Return nothing if there are none."""
        halves, search, turn_until = list[Piece](), self._database.search(), math.inf
        for piece in pieces:
            halves += _halves(piece, search) if time.perf_counter() < until else [piece]
            now = time.perf_counter()
            turn_until = min(turn_until, now + TURN_S)  # The first search may take longer than all others.
            if now >= turn_until:
                break
        return halves


def _halves(piece: Piece, search: KeySearch) -> list[Piece]:
    """Halve a piece if it has several keys. Its ends are known, so only the two keys in its middle are searched."""
    first, last = piece
    if first == last:
        return [piece]
    # Half-way between them are the common prefix, and the mean of the next eight bytes as numbers.
    common = commonprefix((first, last)) or b""  # noqa: RUF071  # they are no paths
    low, high = (int.from_bytes(key[len(common) :][:8].ljust(8, b"\0"), "big") for key in (first, last))
    middle = min(search.first(common + ((low + high + 1) // 2).to_bytes(8, "big")) or last, last)
    if middle <= first:
        return [piece]
    return [(first, max(first, search.last(middle) or first)), (middle, last)]
