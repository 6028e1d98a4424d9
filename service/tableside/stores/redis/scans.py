"""Scans of a table in no order: SCAN over the names with the table's prefix, page by page.

If a page has no room for all names of a cursor, the position also contains digests of the returned names, which the
next page skips when it repeats the cursor. While the records of one SCAN are read, the next SCAN is already sent.
"""

import asyncio
from collections.abc import Sequence

from msgspec.structs import replace
from xxhash import xxh3_64_digest

from ...core import Page, Scan
from .connection import Node
from .keys import KeyNames, slot_of
from .keyspace import COUNT_MAX, COUNT_SPARSE_MAX, Keyspace, Position, rounds, scan_node
from .pages import NamedKey, PageBuilder
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
        position, page = _start_position(scan), PageBuilder(scan, self._reads)
        pattern, count = self._names.pattern(scan), min(scan.limit, COUNT_MAX)
        node: Node | None = None
        ahead: tuple[str, int, list[bytes]] | None = None
        for _ in rounds():
            if node is None or not position.part:
                node, position = await self._keyspace.start_node(position)
            run, cursor, names = ahead or await scan_node(node, position.cursor, pattern, count)
            ahead = None
            if position.run not in ("", run):
                position, node = position.restarted(), None
                continue
            position = replace(position, run=run)
            fresh = self._fresh(names, position, page)
            if len(fresh) > page.room and (page.records or count > 1):
                if page.records:
                    break
                count = max(1, count // 4)
                continue
            room = page.room - len(fresh)
            count = max(1, min(room, COUNT_MAX)) if fresh else min(count * 2, COUNT_SPARSE_MAX)
            if cursor and page.needs_more_than(len(fresh)):
                taken, ahead = await asyncio.gather(page.fill(fresh), scan_node(node, cursor, pattern, count))
            else:
                taken = await page.fill(fresh)
            if taken < len(fresh):
                given = b"".join(xxh3_64_digest(name.encode()) for name, _ in fresh[:taken])
                position = replace(position, given=position.given + given)
                break
            if cursor:
                position = replace(position, cursor=cursor, given=b"")
            elif (after := position.without(await self._keyspace.finished_slots(node, position))) is None:
                return Page(page.records, None)
            else:
                position, node = after, None
            if page.nearly_full:
                break
        return Page(page.records, position.to_bytes())

    def _fresh(self, names: Sequence[bytes], position: Position, page: PageBuilder) -> list[NamedKey]:
        """Return the names of the table's records among names from SCAN, without names that were already returned."""
        given = position.given
        digests = {given[at : at + DIGEST_BYTES] for at in range(0, len(given), DIGEST_BYTES)}
        fresh = [name for name in names if xxh3_64_digest(name) not in digests] if digests else names
        records = table_records(fresh, self._names, position)
        return (
            records
            if page.names.isdisjoint([name for name, _ in records])
            else [one for one in records if one[0] not in page.names]
        )


def table_records(names: Sequence[bytes], table: KeyNames, position: Position) -> list[NamedKey]:
    """Return the records of a table among names from SCAN, each once, in the slots that the scan covers."""
    part, found = parse_slots(position.part), table.named_keys(names)
    if part is ALL_SLOTS:
        return list(found.items())
    return [(name, key) for name, key in found.items() if slot_of(name) in part]


def _start_position(scan: Scan) -> Position:
    if scan.position is None:
        return Position(format_slots(slots_of_split(scan.split)))
    return Position.from_bytes(scan.position)
