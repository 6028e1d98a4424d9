"""Scans of one partition in sort order, from its index.

Another tool may have added records without the index. Unless the table is `exclusive`, a scan therefore first
reads the names in the database, page by page without records, and adds the missing ones to the index. The indexes of an
exclusive table are completed in the same way, once, and then have a mark for each slot. Later scans find the mark and
read only the index.
"""

import math
from collections.abc import Sequence
from typing import TypeVar

from msgspec.structs import replace

from ...core import Page, Part, Scan, TableError
from .errors import expected
from .keys import ALL_SLOTS, KeyNames, NamedKey, PartitionIndex, format_slots, slot_of
from .records import RecordReader
from .scans import COUNT_MAX, COUNT_SPARSE_MAX, Keyspace, NamedPageBuilder, Position, rounds, table_records
from .scripts import Command, RecordScript, Script
from .servers import Servers
from .writes import RecordWriter

Answer = TypeVar("Answer")

MEMBERS_MAX = 512
"""How many members of the index to read in one call."""

_IN_INDEX = b"i"
"""Begins a position in the index, followed by the last member that was returned."""

INDEX = RecordScript("""
-- Makes the index agree with the records, without arguments. Writes nothing if it already does, as for scans of a
-- read-only replica. Returns 0 for each record.
local results = {}
for at = 1, count do
  local index, expiring, member = KEYS[count * 2 + at], KEYS[count * 3 + at], argument(1, at)
  local succeeded, error = pcall(function()
    local expires = redis.call('PEXPIRETIME', KEYS[at])
    local indexed, score = redis.call('ZSCORE', index, member), redis.call('ZSCORE', expiring, member)
    if (expires ~= ABSENT) == (indexed ~= false) and math.max(expires, 0) == tonumber(score or 0) then return end
    local changes = changes_of(index, expiring)
    if expires == ABSENT then remove(changes, member) else add(changes, member, math.max(expires, 0)) end
  end)
  results[at] = succeeded and 0 or failure(error)
end
write_indexes()
return results
""")

COMPLETE_SCRIPT = Script("""
-- Sets KEYS[1], the mark of a complete index, if the server's run id is ARGV[1]. Returns whether it is.
if not string.find(redis.call('INFO', 'server'), 'run_id:' .. ARGV[1], 1, true) then return 0 end
redis.call('SET', KEYS[1], '1')
return 1
""")


class PartitionScanner:
    """Reads pages of one partition."""

    def __init__(
        self, servers: Servers, names: KeyNames, index: PartitionIndex, reads: RecordReader, writes: RecordWriter
    ) -> None:
        self._servers = servers
        self._names = names
        self._index = index
        self._reads = reads
        self._writes = writes

    async def page(self, scan: Scan, partition: Part) -> Page:
        """Read a page in sort order. The first pages have no records while the index is completed."""
        self._index.bounds(scan.prefix, None)  # raises for a prefix of an integer
        if scan.position is not None and scan.position[:1] == _IN_INDEX:
            return await self._indexed_page(scan, partition, scan.position[1:])
        if scan.position is not None or not await self._is_complete(partition):
            position = await self._complete_index(scan, partition)
            if position is not None:
                return Page([], position.to_bytes())
        return await self._indexed_page(scan, partition, None)

    # Reading the index

    async def _indexed_page(self, scan: Scan, partition: Part, after: bytes | None) -> Page:
        page, name = NamedPageBuilder(scan, self._reads), self._index.name(partition)
        for _ in rounds():
            count = min(page.room, MEMBERS_MAX)
            words = ("ZRANGE", name, *self._index.bounds(scan.prefix, after), "BYLEX", "LIMIT", 0, count)
            members = await self._ask(list, Command(words, slot_of(name)))
            decoded = [(at, self._index.key(partition, member)) for at, member in enumerate(members)]
            keys = {at: key for at, key in decoded if key is not None}
            candidates = list(zip(self._names.for_keys(keys.values()), keys.values(), strict=True))
            absent_before = len(page.absent)
            filled = await page.fill(candidates)
            await self._update_index(page.absent[absent_before:])  # A read-only server refuses, which changes nothing.
            processed = len(members) if filled == len(candidates) else list(keys)[filled]
            if processed == len(members) < count:
                return Page(page.records, None)
            after = members[processed - 1]
            if page.complete:
                break
        return Page(page.records, _IN_INDEX + (after or b""))

    async def _is_complete(self, partition: Part) -> bool:
        slot = slot_of(self._index.name(partition))
        return self._index.exclusive and await self._ask(int, Command(("EXISTS", self._mark(slot)), slot)) == 1

    async def _ask(self, kind: type[Answer], command: Command) -> Answer:
        [reply] = await self._servers.run([command], math.inf)
        return expected(reply, kind)

    # Completing the index

    async def _complete_index(self, scan: Scan, partition: Part) -> Position | None:
        """Add missing records to the index. Return the position of the next page, or None if the index is complete."""
        pattern = self._names.pattern(Scan(1) if self._index.exclusive else replace(scan, position=None))
        if scan.position is not None:
            start = Position.from_bytes(scan.position)
        else:
            one_slot = self._servers.is_cluster and not self._index.exclusive
            start = Position(format_slots({slot_of(self._index.name(partition))} if one_slot else ALL_SLOTS))
        keyspace, count = Keyspace(self._servers, pattern, start), COUNT_MAX
        for _ in rounds():
            if (found := await keyspace.scan(count)) is None:
                continue
            position, names = found
            records = table_records(names, self._names, position)
            for error in await self._update_index(records):
                raise error
            count = COUNT_MAX if records else min(count * 2, COUNT_SPARSE_MAX)
            finished = await keyspace.advance()
            if finished and self._index.exclusive:
                # Mark the indexes of slots as complete, unless another server now has their place.
                marked = sorted(finished) if self._servers.is_cluster else [0]
                marks = [Command((), at, COMPLETE_SCRIPT, [[self._mark(at)]], [[position.run]]) for at in marked]
                for reply in await self._servers.run(marks, math.inf, writes=True):
                    expected(reply, int)
            if keyspace.position is None:
                break
        return keyspace.position

    async def _update_index(self, records: Sequence[NamedKey]) -> list[TableError]:
        if not records:
            return []
        results = await self._writes.run(INDEX, [key for _, key in records], [], math.inf)
        return [result for result in results if isinstance(result, TableError)]

    def _mark(self, slot: int) -> str:
        return self._index.mark(slot if self._servers.is_cluster else None)
