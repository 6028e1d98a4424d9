"""Scans of a table in no order: SCAN over the names with the table's prefix, node by node and page by page.

SCAN returns every key that exists throughout the scan if its cursors are followed on one run of a server. A position
therefore contains the server's run id and a cursor. After a restart of the server, or a failover to another node, the
scan of that node starts again. Slots of a cluster are done if the scanned node owned them both before and after the
scan.

If a page has no room for all names of a cursor, the position also contains digests of the returned names, which the
next page skips when it repeats the SCAN.
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
    Outcome,
    Page,
    PageBuilder,
    Record,
    Results,
    Scan,
    StoreUnavailable,
    TableError,
)
from .connection import Node
from .errors import expected, from_unexpected_reply
from .keys import ALL_SLOTS, KeyNames, NamedKey, format_slots, parse_slots, slot_of, slots_of_split
from .records import SCRIPT_RECORDS_MAX, RecordReader
from .scripts import Command
from .servers import Servers

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

    def to_bytes(self) -> bytes:
        """Return the position in its serialized form."""
        return msgspec.json.encode(self)

    @staticmethod
    def from_bytes(text: bytes) -> "Position":
        """Parse the result of `to_bytes`. Raise MalformedRequest for anything else."""
        try:
            position = msgspec.json.decode(text, type=Position)
            parse_slots(position.left)
            if position.part:
                parse_slots(position.part)
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


class NamedPageBuilder(PageBuilder):
    """Reads and collects the records of one page. `absent` are the records that were not there."""

    def __init__(self, scan: Scan, reads: RecordReader) -> None:
        super().__init__(scan)
        self.absent: list[NamedKey] = []
        self._scan = scan
        self._reads = reads

    async def fill(self, candidates: Sequence[NamedKey]) -> int:
        """Add records until the page is complete, and return the number of candidates that were processed."""
        taken = 0
        while taken < len(candidates) and not self.complete:
            count = FIRST_VALUES
            if self.count:  # As many as fit if they have the average size of those so far.
                left_bytes = max(0, min(READ_BYTES_MAX, self.bytes_left))
                count = 1 + left_bytes * self.count // max(1, self._scan.bytes_max - self.bytes_left)
            batch = candidates[taken : taken + count]
            taken += self._add(batch, await self._reads.get([name for name, _ in batch], math.inf))
        return taken

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


async def read_page(scan: Scan, servers: Servers, names: KeyNames, reads: RecordReader) -> Page:
    """Read a page of a table in no particular order."""
    if scan.position is None:
        start = Position(format_slots(slots_of_split(scan.split)))
    else:
        start = Position.from_bytes(scan.position)
    keyspace, page = Keyspace(servers, names.pattern(scan), start), NamedPageBuilder(scan, reads)
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
        if (taken := await page.fill(candidates)) < len(candidates):
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
    return Page(page.records, None if keyspace.position is None else keyspace.position.to_bytes())


def _fresh(position: Position, names: list[bytes], seen: set[bytes]) -> list[bytes]:
    given = position.given
    digests = {given[at : at + DIGEST_BYTES] for at in range(0, len(given), DIGEST_BYTES)}
    fresh = [name for name in names if xxh3_64_digest(name) not in digests] if digests else names
    return fresh if seen.isdisjoint(fresh) else [name for name in fresh if name not in seen]


def table_records(names: Sequence[bytes], table: KeyNames, position: Position) -> Sequence[NamedKey]:
    """Return the records of a table among names from SCAN, each once, in the slots that the scan covers."""
    part, found = parse_slots(position.part), table.named_keys(list(dict.fromkeys(names)))
    return found if part is ALL_SLOTS else [(name, key) for name, key in found if slot_of(name) in part]
