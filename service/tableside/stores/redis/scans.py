"""Scans: of a table in no order, and of a partition in sort order, from its index.

A scan of a table sends SCAN for the names with the table's prefix, node by node and page by page.

SCAN returns every key that exists throughout the scan if its cursors are followed on one run of a server. A position
therefore contains the server's run id and a cursor. After a restart of the server, or a failover to another node, the
scan of that node starts again. Slots of a cluster are done if the scanned node owned them both before and after the
scan.

If a page has no room for all names of a cursor, the position also contains digests of the returned names, which the
next page skips when it repeats the SCAN.

Another tool may have added records to a partition without the index. Unless the table is `exclusive`, a scan therefore
first reads the names in the database, page by page without records, and adds the missing ones to the index. The indexes
of an exclusive table are completed in the same way, once, and then have a mark for each slot. Later scans find the mark
and read only the index.
"""

import math
import time
from collections.abc import Iterator, Sequence

import msgspec
from msgspec.structs import replace
from xxhash import xxh3_64_digest

from ...core import (
    NOT_READ,
    PAGE_SEARCH_S,
    READ_BYTES_MAX,
    MalformedRequest,
    Page,
    PageBuilder,
    Part,
    Scan,
    StoreUnavailable,
    TableError,
)
from .connection import Node
from .errors import Expected, expected, from_unexpected_reply
from .keys import ALL_SLOTS, KeyNames, NamedKey, PartitionIndex, format_slots, parse_slots, slot_of, slots_of_split
from .records import SCRIPT_RECORDS_MAX, RecordReader
from .scripts import Command, RecordScript, Script
from .servers import Servers
from .writes import RecordWriter

COUNT_MAX = 512
"""How many keys one SCAN inspects if many match. Also limits the digests in a position."""

COUNT_SPARSE_MAX = 8192
"""How many keys one SCAN inspects if few match."""

ROUNDS_MAX = 64
"""How many requests one page sends, whether they find records or not, unless PAGE_SEARCH_S ends it first."""

DIGEST_BYTES = 8

FIRST_VALUES = SCRIPT_RECORDS_MAX + 1
"""How many values to read first, when their size is unknown. The script would not return them in columns."""


def rounds() -> Iterator[float]:
    """Yield for each request of a page that begins now the time when the page has to end. The first is always sent."""
    ends_at = time.monotonic() + PAGE_SEARCH_S
    for index in range(ROUNDS_MAX):
        if index and time.monotonic() >= ends_at:
            return
        yield ends_at


class Position(msgspec.Struct, frozen=True, array_like=True):
    """Where to continue.

    `left` are the slots still to scan, and `part` are the ones that the current node's scan covers. `run` is the run id
    of the node. `count` is how many keys the last SCAN inspected. The next page begins with the same number. `given`
    are the digests of the names that the current cursor has already returned for this number of keys.
    """

    left: str
    part: str = ""
    run: str = ""
    cursor: int = 0
    given: bytes = b""
    count: int = 0

    @staticmethod
    def from_bytes(text: bytes) -> "Position":
        """Parse a position in JSON. Raise MalformedRequest for anything else."""
        try:
            position = msgspec.json.decode(text, type=Position)
            parse_slots(position.left)
            parse_slots(position.part or position.left)
            if not (0 <= position.cursor < 2**64 and 0 <= position.count <= COUNT_SPARSE_MAX):
                raise ValueError
        except ValueError:  # msgspec's own errors too
            raise MalformedRequest("the cursor does not belong to this scan") from None
        return position


class Keyspace:
    """Finds the names that match a pattern, on a server or on the nodes of a cluster, one SCAN after another.

    `position` is where to continue, None after the last SCAN.
    """

    def __init__(self, servers: Servers, pattern: str, position: Position) -> None:
        self.position: Position | None = position
        self._servers = servers
        self._pattern = pattern
        self._node: Node | None = None
        self._next_cursor = 0

    async def scan(self, count: int) -> tuple[Position, list[bytes]] | None:
        """Send a SCAN that inspects `count` keys. Return its position, with the run id, and the names that it found.

        Return None if the scan of the node has to start again.
        """
        position = self.position
        assert position is not None
        if self._node is None or not position.part:
            self._node, position = await self._start_node(position)
        scan = Command(("SCAN", position.cursor, "MATCH", self._pattern, "COUNT", count))
        info, reply = await self._node.run([Command(("INFO", "server")), scan], math.inf)
        match reply:
            case [bytes() as next_cursor, [*names]] if isinstance(info, bytes) and next_cursor.isdigit():
                run, self._next_cursor = info.partition(b"run_id:")[2][:40].decode(), int(next_cursor)
            case _:
                raise from_unexpected_reply(info if isinstance(info, Exception) else reply)
        if position.run not in ("", run):
            self.position, self._node = Position(position.left), None
            return None
        self.position = replace(position, run=run, count=count)
        return self.position, names

    async def advance(self) -> frozenset[int]:
        """Continue after the last SCAN. Return the slots that it has completed."""
        position, node = self.position, self._node
        assert position is not None
        assert node is not None
        if self._next_cursor:
            self.position = replace(position, cursor=self._next_cursor, given=b"")
            return frozenset()
        finished = parse_slots(position.part) & await self._owned_slots(node)
        left = parse_slots(position.left) - finished
        self.position, self._node = Position(format_slots(left)) if left else None, None
        return finished

    async def _start_node(self, position: Position) -> tuple[Node, Position]:
        """Return the node to scan, and the position with the slots that its scan covers."""
        remaining = parse_slots(position.part or position.left)
        nodes = await self._servers.nodes(math.inf)
        node, slots = max(nodes, key=lambda one: len(one[1] & remaining), default=(None, frozenset[int]()))
        if node is None or not slots & remaining:
            raise StoreUnavailable("no node serves some slots of the Redis Cluster")
        if position.part:
            return node, position
        part = remaining & await self._owned_slots(node)
        if not part:
            raise StoreUnavailable("slots of the Redis Cluster are migrating to another node")
        return node, replace(position, part=format_slots(part))

    async def _owned_slots(self, node: Node) -> frozenset[int]:
        """Return the slots that a node serves and is not migrating to another node."""
        if not self._servers.is_cluster:
            return ALL_SLOTS
        [reply] = await node.run([Command(("CLUSTER", "NODES"))], math.inf)
        lines = [line.split() for line in expected(reply, bytes).decode().splitlines()]
        words = [word for line in lines if "myself" in line[2].split(",") for word in line[8:]]
        migrating = {int(word[1:].partition("-")[0]) for word in words if "->-" in word}
        owned = ",".join(word for word in words if not word.startswith("["))
        return parse_slots(owned) - migrating if owned else frozenset()


async def fill(
    page: PageBuilder, scan: Scan, reads: RecordReader, candidates: Sequence[NamedKey]
) -> tuple[int, list[NamedKey]]:
    """Add records until the page is complete. Return how many candidates were processed, and those without a record."""
    taken, absent = 0, list[NamedKey]()
    while taken < len(candidates) and not page.complete:
        count = FIRST_VALUES
        if page.count:  # As many as fit if they have the average size of those so far.
            left_bytes = max(0, min(READ_BYTES_MAX, page.bytes_left))
            count = 1 + left_bytes * page.count // max(1, scan.bytes_max - page.bytes_left)
        batch = candidates[taken : taken + count]
        outcomes = await reads.get([name for name, _ in batch], math.inf)
        if page.add_all([key for _, key in batch], outcomes):
            taken += len(batch)
            continue
        for (name, key), outcome in zip(batch, outcomes, strict=True):
            if page.complete or outcome is NOT_READ:
                break
            if outcome is None:
                absent.append((name, key))
            else:
                page.add(key, outcome)
            taken += 1
    return taken, absent


async def read_page(scan: Scan, servers: Servers, names: KeyNames, reads: RecordReader) -> Page:
    """Read a page of a table in no particular order."""
    if scan.position is None:
        start = Position(format_slots(slots_of_split(scan.split)))
    else:
        start = Position.from_bytes(scan.position)
    keyspace, page = Keyspace(servers, names.pattern(scan), start), PageBuilder(scan)
    seen, count = set[bytes](), start.count or min(scan.limit, COUNT_MAX)
    for ends_at in rounds():
        if (found := await keyspace.scan(count)) is None:
            continue
        position, fresh = found[0], _fresh(*found, seen)
        candidates = table_records(fresh, names, position)
        if len(candidates) > page.room:
            if page.count:
                break
            if count > 1 and time.monotonic() < ends_at:
                count = max(1, count // 4)
                continue
        seen.update(fresh)
        taken, _ = await fill(page, scan, reads, candidates)
        if taken < len(candidates):
            given = b"".join(xxh3_64_digest(name.encode()) for name, _ in candidates[:taken])
            keyspace.position = replace(position, given=position.given + given)
            break
        await keyspace.advance()
        # A page with three quarters of its records ends: the rest may take many SCANs.
        if keyspace.position is None or page.complete or page.room * 4 <= scan.limit:
            break
        # If the page had no room for all of the next SCAN, that would be in vain.
        wanted = max(1, min(page.room * 3 // 4, COUNT_MAX))
        count = max(1, min(count * wanted // len(candidates) if candidates else count * 2, COUNT_SPARSE_MAX))
    return Page(page.records, None if keyspace.position is None else msgspec.json.encode(keyspace.position))


def _fresh(position: Position, names: list[bytes], seen: set[bytes]) -> list[bytes]:
    given = position.given
    digests = {given[at : at + DIGEST_BYTES] for at in range(0, len(given), DIGEST_BYTES)}
    fresh = [name for name in names if xxh3_64_digest(name) not in digests] if digests else names
    return fresh if seen.isdisjoint(fresh) else [name for name in fresh if name not in seen]


def table_records(names: Sequence[bytes], table: KeyNames, position: Position) -> Sequence[NamedKey]:
    """Return the records of a table among names from SCAN, each once, in the slots that the scan covers."""
    part, found = parse_slots(position.part), table.named_keys(list(dict.fromkeys(names)))
    return found if part is ALL_SLOTS else [(name, key) for name, key in found if slot_of(name) in part]


# Scans of a partition

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


class PartitionScanner(msgspec.Struct, frozen=True, eq=False):
    """Reads pages of one partition."""

    servers: Servers
    names: KeyNames
    index: PartitionIndex
    reads: RecordReader
    writes: RecordWriter

    async def page(self, scan: Scan, partition: Part) -> Page:
        """Read a page in sort order. The first pages have no records while the index is completed."""
        self.index.bounds(scan.prefix, None)  # raises for a prefix of an integer
        if scan.position is not None and scan.position[:1] == _IN_INDEX:
            return await self._indexed_page(scan, partition, scan.position[1:])
        if scan.position is not None or not await self._is_complete(partition):
            position = await self._complete_index(scan, partition)
            if position is not None:
                return Page([], msgspec.json.encode(position))
        return await self._indexed_page(scan, partition, None)

    # Reading the index

    async def _indexed_page(self, scan: Scan, partition: Part, after: bytes | None) -> Page:
        page, name = PageBuilder(scan), self.index.name(partition)
        for _ in rounds():
            count = min(page.room, MEMBERS_MAX)
            words = ("ZRANGE", name, *self.index.bounds(scan.prefix, after), "BYLEX", "LIMIT", 0, count)
            members = await self._ask(list, Command(words, slot_of(name)))
            decoded = [(at, self.index.key(partition, member)) for at, member in enumerate(members)]
            keys = {at: key for at, key in decoded if key is not None}
            candidates = list(zip(self.names.for_keys([*keys.values()]), keys.values(), strict=True))
            filled, absent = await fill(page, scan, self.reads, candidates)
            await self._update_index(absent)  # A read-only server refuses, which changes nothing.
            processed = len(members) if filled == len(candidates) else list(keys)[filled]
            if processed == len(members) < count:
                return Page(page.records, None)
            after = members[processed - 1]
            if page.complete:
                break
        return Page(page.records, _IN_INDEX + (after or b""))

    async def _is_complete(self, partition: Part) -> bool:
        slot = slot_of(self.index.name(partition))
        return self.index.exclusive and await self._ask(int, Command(("EXISTS", self._mark(slot)), slot)) == 1

    async def _ask(self, kind: type[Expected], command: Command) -> Expected:
        [reply] = await self.servers.run([command], math.inf)
        return expected(reply, kind)

    # Completing the index

    async def _complete_index(self, scan: Scan, partition: Part) -> Position | None:
        """Add missing records to the index. Return the position of the next page, or None if the index is complete."""
        pattern = self.names.pattern(Scan(1) if self.index.exclusive else replace(scan, position=None))
        if scan.position is not None:
            start = Position.from_bytes(scan.position)
        else:
            one_slot = self.servers.is_cluster and not self.index.exclusive
            start = Position(format_slots({slot_of(self.index.name(partition))} if one_slot else ALL_SLOTS))
        keyspace, count = Keyspace(self.servers, pattern, start), COUNT_MAX
        for _ in rounds():
            if (found := await keyspace.scan(count)) is None:
                continue
            position, names = found
            records = table_records(names, self.names, position)
            for error in await self._update_index(records):
                raise error
            count = COUNT_MAX if records else min(count * 2, COUNT_SPARSE_MAX)
            finished = await keyspace.advance()
            if finished and self.index.exclusive:
                # Mark the indexes of slots as complete, unless another server now has their place.
                marked = sorted(finished) if self.servers.is_cluster else [0]
                marks = [Command((), at, COMPLETE_SCRIPT, [[self._mark(at)]], [[position.run]]) for at in marked]
                for reply in await self.servers.run(marks, math.inf, writes=True):
                    expected(reply, int)
            if keyspace.position is None:
                break
        return keyspace.position

    async def _update_index(self, records: Sequence[NamedKey]) -> list[TableError]:
        if not records:
            return []
        results = await self.writes.run(INDEX, [key for _, key in records], [], math.inf)
        return [result for result in results if isinstance(result, TableError)]

    def _mark(self, slot: int) -> str:
        return self.index.mark(slot if self.servers.is_cluster else None)
