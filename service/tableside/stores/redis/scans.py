"""Scans of a table in no order: SCAN over the names with the table's prefix, page by page.

If a page has no room for all names of a cursor, the position also contains digests of the returned names, which the
next page skips when it repeats the SCAN. While the records of one SCAN are added to the page, Redis already reads
those of the next one, and executes the SCAN after it.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace
from xxhash import xxh3_64_digest

from ...core import Page, Scan
from .connection import Node
from .keys import KeyNames, NamedKey, slot_of
from .keyspace import COUNT_MAX, COUNT_SPARSE_MAX, Keyspace, Position, ScanReply, page_end, rounds, scan_node
from .pages import NamedPageBuilder, Reading
from .reads import RecordReader
from .topology import ALL_SLOTS, Servers, format_slots, parse_slots, slots_of_split

DIGEST_BYTES = 8


class TableScanner:
    """Reads pages of one table."""

    def __init__(self, servers: Servers, names: KeyNames, reads: RecordReader) -> None:
        self._keyspace = Keyspace(servers)
        self._names = names
        self._reads = reads

    async def page(self, scan: Scan) -> Page:
        """Read a page in no particular order."""
        page = _PageScan(scan, self._keyspace, self._names, self._reads)
        try:
            return await page.read()
        finally:
            page.close()


class _PageScan:
    """Reads one page.

    `_seen` are the names that SCAN has returned. `_ahead` is the next SCAN if it has been sent. `_pending` are the
    position of the last SCAN and its records, which are not in the page yet.
    """

    def __init__(self, scan: Scan, keyspace: Keyspace, names: KeyNames, reads: RecordReader) -> None:
        self._keyspace = keyspace
        self._names = names
        self._start = _start_position(scan)
        self._pattern = names.pattern(scan)
        self._page = NamedPageBuilder(scan, reads)
        self._count = self._start.count or min(scan.limit, COUNT_MAX)
        self._seen: set[bytes] = set()
        self._ahead: asyncio.Future[tuple[int, ScanReply]] | None = None
        self._pending: tuple[Position, Reading] | None = None

    async def read(self) -> Page:
        """Read the page."""
        position, node, stop, complete = self._start, None, None, False
        ends_at = page_end()
        for _ in rounds(ends_at):
            if node is None or not position.part:
                node, position = await self._keyspace.start_node(position)
            count, (run, cursor, names) = await (self._ahead or self._scan_names(node, position.cursor))
            self._ahead = None
            if position.run not in ("", run):
                position, node = position.restarted(), None
                continue
            position = replace(position, run=run, count=count)
            if cursor and self._page.fits(2 * len(names)) and self._needs_more_than(len(names)):
                self._choose_count(len(names))
                self._ahead = asyncio.ensure_future(self._scan_names(node, cursor))
                await asyncio.sleep(0)  # Send it: Redis executes it while the names are parsed.
            names = self._fresh(names, position)
            fresh = table_records(names, self._names, position)
            if len(fresh) > self._room and (self._pending or self._page.count):
                break
            if len(fresh) > self._room and self._count > 1 and time.monotonic() < ends_at:
                self._count = max(1, self._count // 4)
                continue
            if self._ahead is None:
                self._choose_count(len(fresh))
            self._seen.update(names)
            before, self._pending = self._pending, (position, self._page.read_ahead(fresh))
            if before is not None and (stop := await self._add(*before)) is not None:
                break
            if cursor:
                position = replace(position, cursor=cursor, given=b"")
            elif (after := position.without(await self._keyspace.finished_slots(node, position))) is None:
                complete = True
                break
            else:
                position, node = after, None
            if not self._needs_more_than(0):
                break
        if stop is None and self._pending is not None:
            stop = await self._add(*self._pending)
        if self._sent:  # The page does not need these replies, but the connections can then be used again.
            await asyncio.wait(self._sent)
        return Page(self._page.records, None if complete and stop is None else (stop or position).to_bytes())

    def close(self) -> None:
        """Cancel requests that are still in progress."""
        for future in self._sent:
            future.cancel()
            if future.done() and not future.cancelled():
                future.exception()  # Otherwise asyncio logs it.

    @property
    def _sent(self) -> list[asyncio.Future[Any]]:
        reading = None if self._pending is None else self._pending[1].outcomes
        return [future for future in (self._ahead, reading) if future is not None]

    @property
    def _pending_count(self) -> int:
        return 0 if self._pending is None else len(self._pending[1].candidates)

    @property
    def _room(self) -> int:
        return self._page.room - self._pending_count

    def _needs_more_than(self, count: int) -> bool:
        return self._page.needs_more_than(self._pending_count + count)

    def _choose_count(self, found: int) -> None:
        """Choose how many keys the next SCAN inspects, after the last one has found so many.

        A page needs three quarters of its records. If it had no room for all of the next SCAN, that would be in vain.
        """
        wanted = max(1, min((self._room - found) * 3 // 4, COUNT_MAX))
        self._count = max(1, min(self._count * wanted // found if found else self._count * 2, COUNT_SPARSE_MAX))

    async def _scan_names(self, node: Node, cursor: int) -> tuple[int, ScanReply]:
        """Send SCAN. Return how many keys it inspects, and the reply."""
        count = self._count
        return count, await scan_node(node, cursor, self._pattern, count)

    async def _add(self, position: Position, reading: Reading) -> Position | None:
        """Add the records of a SCAN to the page. If the page has no room for all, return the position of the others."""
        taken = await self._page.fill(reading)
        if taken == len(reading.candidates):
            return None
        given = b"".join(xxh3_64_digest(name.encode()) for name, _ in reading.candidates[:taken])
        return replace(position, given=position.given + given)

    def _fresh(self, names: list[bytes], position: Position) -> list[bytes]:
        """Return names from SCAN without names that were already returned."""
        given = position.given
        digests = {given[at : at + DIGEST_BYTES] for at in range(0, len(given), DIGEST_BYTES)}
        fresh = [name for name in names if xxh3_64_digest(name) not in digests] if digests else names
        return fresh if self._seen.isdisjoint(fresh) else [name for name in fresh if name not in self._seen]


def table_records(names: Sequence[bytes], table: KeyNames, position: Position) -> Sequence[NamedKey]:
    """Return the records of a table among names from SCAN, each once, in the slots that the scan covers."""
    part, found = parse_slots(position.part), table.named_keys(list(dict.fromkeys(names)))
    return found if part is ALL_SLOTS else [(name, key) for name, key in found if slot_of(name) in part]


def _start_position(scan: Scan) -> Position:
    if scan.position is None:
        return Position(format_slots(slots_of_split(scan.split)))
    return Position.from_bytes(scan.position)
